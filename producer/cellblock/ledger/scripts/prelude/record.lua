-- Job hash <prefix>:job:<id>
--   state        queued | running | succeeded | failed | cancelled | rejected
--   tenant level priority trace_id submitted image        written once, by admit
--   attempt      the fence: raised by every claim; a write under another attempt is refused
--   losses       attempts that ended with a lost worker
--   faults       attempts that ended through a fault of ours (sandbox_error)
--   failures     attempts that the job's own failure ended, counted where the job asks for retries
--   worker       who holds (or last held) the lease
--   cancel       "1" once a running job was asked to stop
--   admitted_ms queued_ms started_ms finished_ms           the server's clock
--   expires_ms   a job that has not started by then is rejected; window_ms after it was queued
--   rank         where it stands in its tenant's line: by priority, then by admission (µs)
--   outcome      set with the terminal state
--   parent       of a nested run: the job whose slot it runs in, and whose money it spends
--   plan reserved charged cost day   of jobs with a plan, in micros: what is held for it, what attempts that are over
--                have used of that, what was taken in the end; and the day (since 1970) whose account has it
--   result_ttl_s   how long its plan keeps its result
--   bytes kept     what it takes of the store while it has not ended, and since it has
--   idempotency digest   the key it was accepted under, and the digest of what was asked
--   blobs result_blob   names of its payload and of its result in the blob store
--   uploading    "1" until its parts are in the blob store: it cannot be claimed before
--   fetched      "1" once a caller got the result: it may leave before those that nobody has got
--   blob_bytes result_bytes   the bytes of each there
--   lent borrowed   of a parent: what its nested runs have of what was held for it; of a nested run: "1" while
--                what is held for it is its parent's
--   op_claim op_finish op_release op_retry op_drop         last operation id of each kind: a resent
--                                                          script finds its own id and changes nothing

-- Returns fields of a hash by name; a missing field is nil.
local function fields_of(key, ...)
  local names, found = { ... }, {}
  local values = redis.call('HMGET', key, ...)
  for i, name in ipairs(names) do
    found[name] = values[i] or nil
  end
  return found
end

-- Returns fields of the job's record.
local function record(...)
  return fields_of(keys.job, ...)
end

-- Returns the fields of its record that ending or requeuing a job needs.
local function whole_record()
  return record('state', 'attempt', 'cancel', 'tenant', 'trace_id', 'worker', 'started_ms', 'priority', 'rank',
    'window_ms', 'expires_ms', 'plan', 'reserved', 'charged', 'day', 'borrowed', 'result_ttl_s', 'bytes',
    'op_finish', 'op_release', 'level', 'submitted', 'admitted_ms', 'blobs', 'blob_bytes', 'uploading',
    'idempotency', 'image')
end

local function is_terminal(state)
  return state == 'succeeded' or state == 'failed' or state == 'cancelled' or state == 'rejected'
end

-- The one place that writes events, so that all carry the same fields: Redis stores their names once for many events.
-- job: fields of its record. message: the error of its result in short, "" if it has none.
local function emit(kind, job_id, at_ms, job, outcome, message)
  redis.call('XADD', keys.events, '*', 'type', 'agent.run.' .. kind, 'job_id', job_id, 'at_ms', int(at_ms),
    'tenant', job.tenant, 'attempt', job.attempt, 'outcome', outcome or '', 'worker', job.worker or '',
    'trace_id', job.trace_id, 'plan', job.plan or '', 'image', job.image or '', 'message', message or '')
end

-- Appends to the job's history an attempt that did not simply end: fence, worker, from, to (ms), why.
local function note(job, why, at_ms, ttl_s)
  local line = { job.attempt, job.worker or '-', job.started_ms or '0', int(at_ms), why }
  redis.call('RPUSH', keys.attempts, table.concat(line, ' '))
  redis.call('LTRIM', keys.attempts, -ATTEMPTS_KEPT, -1)
  redis.call('EXPIRE', keys.attempts, int(ttl_s))
end
