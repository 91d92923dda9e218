"""Prose in several scripts, varied enough that two texts of one language share words but no passages."""

# ruff: noqa: RUF001

from __future__ import annotations

import itertools
import pydoc_data.topics
import random
import re
from collections import defaultdict
from functools import cache

#: Per language: who | does | what | when or where. Any combination reads as a sentence.
PARTS: dict[str, tuple[str, str, str, str]] = {
    "german": (
        "Der alte Müller|Die Gärtnerin|Mein Nachbar|Die Lehrerin aus Kiel|Der Fährmann|Das Kind|Der Bote",
        "sieht|findet|zählt|beschreibt|vergisst|sucht|malt|verkauft",
        "die blaue Laterne|den schmalen Weg|das Haus am Fluss|drei Körbe Äpfel|die Brücke|den langen Brief",
        "am frühen Morgen|hinter dem Deich|trotz des Regens|im letzten Winter|ohne Worte|seit zwölf Tagen",
    ),
    "russian": (
        "старый рыбак|молодая учительница|наш сосед|капитан парохода|деревенский врач|моя бабушка|часовщик",
        "видит|находит|ищет|забывает|описывает|рисует|продаёт|хранит",
        "синий фонарь|узкую тропу|дом у реки|корзину яблок|длинное письмо|каменный мост|карту острова",
        "ранним утром|за высокой оградой|в конце зимы|во время дождя|без лишних слов|каждую осень",
    ),
    "greek": (
        "ο γέρος ψαράς|η δασκάλα|ο γείτονάς μου|ο καπετάνιος|η γιαγιά|ο ταχυδρόμος|το παιδί",
        "βλέπει|βρίσκει|ψάχνει|ξεχνά|περιγράφει|ζωγραφίζει|πουλάει",
        "το μπλε φανάρι|τον στενό δρόμο|το σπίτι στο ποτάμι|ένα καλάθι μήλα|το μακρύ γράμμα|τη γέφυρα",
        "νωρίς το πρωί|πίσω από τον λόφο|το τέλος του χειμώνα|μέσα στη βροχή|χωρίς λόγια",
    ),
    "arabic": (
        "الصياد العجوز|المعلم الجديد|جارنا|القبطان|الطبيب|ساعي البريد|الطفل الصغير",
        "يرى|يجد|يصف|ينسى|يرسم|يبيع|يحفظ",
        "الفانوس الأزرق|الطريق الضيق|البيت قرب النهر|سلة التفاح|الرسالة الطويلة|الجسر الحجري",
        "في الصباح الباكر|خلف التل|في آخر الشتاء|تحت المطر|بلا كلام|كل خريف",
    ),
    "hebrew": (
        "הדייג הזקן|המורה החדש|השכן שלי|רב החובל|הרופא|הדוור|הילד הקטן",
        "רואה|מוצא|מתאר|שוכח|מצייר|מוכר|שומר",
        "את הפנס הכחול|את השביל הצר|את הבית ליד הנהר|סל תפוחים|את המכתב הארוך|את הגשר",
        "בבוקר מוקדם|מאחורי הגבעה|בסוף החורף|בגשם|בלי מילים|בכל סתיו",
    ),
    "chinese": (
        "老渔夫|新来的老师|我的邻居|船长|村里的医生|邮递员|小女孩|修表匠",
        "看见了|找到了|忘记了|描述着|画下了|卖掉了|寻找|保存着",
        "蓝色的灯笼|狭窄的小路|河边的房子|一篮苹果|那封长信|石桥|小岛的地图",
        "清晨的时候|在山的后面|冬天结束之前|下雨的夜里|一句话也没说|每年秋天",
    ),
    "japanese": (
        "年老いた漁師は|新しい先生は|隣の人は|船長は|村の医者は|郵便屋は|小さな子は",
        "朝早く|丘のむこうで|冬の終わりに|雨の中で|何も言わずに|毎年の秋に",
        "青い灯を|細い道を|川辺の家を|りんごの籠を|長い手紙を|石の橋を|島の地図を",
        "見つけた|忘れた|描いた|売った|探している|覚えている|語った",
    ),
    "korean": (
        "늙은 어부는|새로 온 선생님은|우리 이웃은|선장은|마을 의사는|우체부는|어린 아이는",
        "이른 아침에|언덕 너머에서|겨울이 끝날 때|빗속에서|말없이|해마다 가을에",
        "파란 등불을|좁은 길을|강가의 집을|사과 바구니를|긴 편지를|돌다리를|섬의 지도를",
        "보았다|찾았다|잊었다|그렸다|팔았다|기억한다|이야기했다",
    ),
    "hindi": (
        "बूढ़ा मछुआरा|नया अध्यापक|मेरा पड़ोसी|जहाज़ का कप्तान|गाँव का वैद्य|डाकिया|छोटा लड़का",
        "सुबह सवेरे|पहाड़ी के पीछे|सर्दियों के अंत में|बारिश में|बिना कुछ कहे|हर साल",
        "नीली लालटेन|संकरा रास्ता|नदी किनारे का घर|सेबों की टोकरी|लंबी चिट्ठी|पत्थर का पुल",
        "देखता है|ढूँढता है|भूल जाता है|बनाता है|बेचता है|याद रखता है",
    ),
    "thai": (
        "ชาวประมงเฒ่า|ครูคนใหม่|เพื่อนบ้านของฉัน|กัปตันเรือ|หมอประจำหมู่บ้าน|บุรุษไปรษณีย์",
        "มองเห็น|ค้นพบ|ตามหา|ลืม|วาด|ขาย|จดจำ",
        "โคมไฟสีฟ้า|ทางเดินแคบ|บ้านริมแม่น้ำ|ตะกร้าแอปเปิล|จดหมายฉบับยาว|สะพานหิน",
        "ในยามเช้า|หลังเนินเขา|ปลายฤดูหนาว|กลางสายฝน|โดยไม่พูดสักคำ|ทุกฤดูใบไม้ร่วง",
    ),
    "french": (
        "Le vieux pêcheur|La maîtresse|Mon voisin|Le capitaine|La grand-mère|Le facteur|L'enfant",
        "voit|trouve|cherche|oublie|décrit|dessine|vend",
        "la lanterne bleue|le sentier étroit|la maison près du fleuve|un panier de pommes|la longue lettre",
        "au petit matin|derrière la colline|à la fin de l'hiver|sous la pluie|sans un mot|chaque automne",
    ),
}
UNSPACED = {"chinese", "japanese", "thai"}
STOPS = {"chinese": "。", "japanese": "。", "hindi": "।", "thai": " "}
LANGUAGES = ("english", *PARTS)


def prose(rng: random.Random, size: int, language: str = "english") -> str:
    """About ``size`` characters in paragraphs."""
    paragraphs: list[str] = []
    length = 0
    while length < size:
        sentences = " ".join(sentence(rng, language) for _ in range(rng.randint(3, 8)))
        paragraphs.append(sentences)
        length += len(sentences) + 2
    return "\n\n".join(paragraphs)[:size]


def sentence(rng: random.Random, language: str = "english") -> str:
    """One; now and then with a number in it."""
    if language == "english":
        return _english(rng)
    words = [rng.choice(part.split("|")) for part in PARTS[language]]
    if rng.random() < 0.3:
        words.insert(rng.randint(1, 3), f"({rng.randint(2, 9999)})")
    joined: str = ("" if language in UNSPACED else " ").join(words)
    return joined[0].upper() + joined[1:] + STOPS.get(language, ".")


def varied(rng: random.Random, size: int, language: str) -> str:
    """About as many different words as a language has: two texts share words, and no longer passages."""
    if language == "english":
        return prose(rng, size)
    known, weights = _made_up(language)
    parts: list[str] = []
    length = 0
    while length < size:
        line = ("" if language in UNSPACED else " ").join(rng.choices(known, weights, k=rng.randint(6, 18)))
        number = f" {rng.randint(2, 9999)}" if rng.random() < 0.2 else ""
        end = rng.choice((" ", " ", " ", "\n\n"))
        parts.append(line.capitalize() + number + STOPS.get(language, ".") + end)
        length += len(parts[-1])
    return "".join(parts)[:size]


@cache
def _made_up(language: str) -> tuple[list[str], list[float]]:
    """Words as its own are spelt, and how often each comes; the same on every run."""
    rng = random.Random(language)
    spelt = re.findall(r"[^\s|'.]+", "|".join(PARTS[language]))
    after: dict[str, list[str]] = defaultdict(list)
    for one, following in itertools.pairwise("".join(spelt)):
        after[one].append(following)
    found = dict.fromkeys(spelt)
    while len(found) < 3000:
        made = rng.choice(spelt)[0]
        for _ in range(rng.randint(1, 3) if language in UNSPACED else rng.randint(2, 10)):
            made += rng.choice(rng.choice((after[made[-1]] or spelt, spelt)))[-1]
        found[made] = None
    return list(found), [1 / (rank + 5) for rank in range(len(found))]


def words(rng: random.Random, count: int) -> list[str]:
    """English words of three letters and more, as they come in prose."""
    return rng.choices(_vocabulary(), k=count)


def _english(rng: random.Random) -> str:
    """A walk along which word may follow which."""
    follows = _follows()
    word: str = rng.choice(_vocabulary())
    line = [word.capitalize()]
    for _ in range(rng.randint(5, 22)):
        word = rng.choice(follows.get(word) or _vocabulary())
        line.append(word if rng.random() > 0.02 else f"{word} {rng.randint(2, 9999)}")
        if rng.random() < 0.08:
            line[-1] += ","
    return " ".join(line).rstrip(",") + rng.choice("....?!")


@cache
def _follows() -> dict[str, list[str]]:
    """Which words followed each in the language's own manual."""
    text = " ".join(pydoc_data.topics.topics.values())
    found = re.findall(r"(?<![\w.'\"])[a-z]{1,14}(?![\w.(])", text)
    follows: dict[str, list[str]] = defaultdict(list)
    for word, following in itertools.pairwise(found):
        follows[word].append(following)
    return dict(follows)


@cache
def _vocabulary() -> list[str]:
    return sorted(word for word in _follows() if len(word) > 2)
