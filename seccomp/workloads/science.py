# ruff: noqa: T201  (a job may do as it likes)
"""numpy, pandas, scipy and scikit-learn, with the threads of OpenBLAS and OpenMP and joblib's workers."""

import io
import tempfile

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy import fft, integrate, linalg, optimize, sparse, stats
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

rng = np.random.default_rng(0)
matrix = rng.normal(size=(600, 600))
print(
    np.linalg.svd(matrix @ matrix.T, compute_uv=False)[:2], linalg.lu(matrix)[0].shape, fft.fft(matrix).shape
)
print(optimize.minimize(lambda x: (x**2).sum(), np.ones(3)).success, integrate.quad(np.sin, 0, 1)[0])
print(
    stats.ttest_ind(matrix[0], matrix[1]).pvalue,
    sparse.linalg.spsolve(sparse.eye(10).tocsc(), np.ones(10)).sum(),
)
with tempfile.NamedTemporaryFile(suffix=".npy") as file:
    np.save(file.name, matrix)
    print(np.load(file.name, mmap_mode="r").shape)
frame = pd.DataFrame({"a": rng.integers(0, 9, 10_000), "b": rng.normal(size=10_000)})
frame["when"] = pd.date_range("2024-01-01", periods=len(frame), freq="h", tz="Europe/Berlin")
print(
    frame.groupby("a").agg({"b": ["mean", "std"]}).shape,
    frame.set_index("when").resample("D")["b"].sum().shape,
)
print(pd.read_csv(io.StringIO(frame.to_csv(index=False))).shape, frame.merge(frame.head(10), on="a").shape)
features, labels = make_classification(2000, 20, random_state=0)
print(cross_val_score(LogisticRegression(), features, labels).mean())
print(RandomForestClassifier(20, n_jobs=2).fit(features, labels).score(features, labels))
print(HistGradientBoostingClassifier(max_iter=10).fit(features, labels).score(features, labels))
print(KMeans(3, n_init=1).fit(features).inertia_ > 0)
print(Parallel(n_jobs=2, prefer="threads")(delayed(abs)(-n) for n in range(4)))
try:  # processes need /dev/shm, which not every sandbox mounts
    print(Parallel(n_jobs=2)(delayed(abs)(-n) for n in range(4)))
except OSError as error:
    print("no worker processes:", error)
