-- The figures and names that scripts share, the server's clock, and whole numbers as text.

-- The keys of a script about one job: what ledger/keys.py `of_job` gives.
local OF_JOB = { 'job', 'spec', 'result', 'attempts', 'ready', 'delayed', 'leases', 'deadlines', 'slots',
  'parked', 'lane_turns', 'lane_heads', 'plan_shares', 'dead', 'upkeep', 'events', 'account', 'line', 'parent',
  'nested', 'kept', 'kept_failed', 'kept_dead', 'keepers', 'crowded', 'pressure', 'blobs', 'freed_blobs' }
-- The keys of this call, by name.
local keys = {}

local ATTEMPTS_KEPT = 20
-- The most messages that one reply asks for; the sweep sends the others.
local WOKEN_MAX = 1000
-- A rank is the priority's first rank, plus microseconds since 1970: exact until 2065.
local PRIORITIES = { high = 0, normal = 3e15, low = 6e15 }
-- A turn is the plan's first turn, plus TURN for each claim so far, plus a number for each lane that came since then.
local TURNS = 2 ^ 45
local TURN = 1024
-- How long accounts are kept: 40 days, in seconds.
local ACCOUNT_S = 40 * 86400
-- How far each claim moves the pass of a plan of weight 1.
local STRIDE = 10000
-- Lua's doubles hold every whole number of up to 15 digits exactly.
local DIGITS_MAX = 15
-- The upkeep's leader removes ended jobs in time. Without a leader, Redis expires them this much later.
local UNLED_S = 86400
-- Bytes of a job beside its manifest, or its result: record, indices, events (tests/bench/ledger_costs.py).
local RECORD_BYTES = 900
local RECORD_KEPT_BYTES = 700
-- Bytes of the idempotency key of a job that left early, beside its names: the key, and its place in the list.
local EARLY_KEY_BYTES = 350
-- Bytes of a job's message (producer/cellblock/queue.py), with what the queue adds.
local MESSAGE_BYTES = 900
-- A result longer than this waits for room. A running job's result is counted as this many bytes.
local LARGE_BYTES = 32768
-- The notification to waiting callers carries a result of at most this many bytes.
local TOLD_BYTES = 16384
-- After these outcomes a job is a dead letter, and free.
local OUR_FAULT = { worker_lost = true, sandbox_error = true }
-- The most blobs that wait to be removed; what is freed beyond that the sweep finds.
local FREED_BLOBS_MOST = 50000
-- Percents of the store's memory (ledger/pressure.py).
local SHARED_ABOVE = 60
local ADMITS_BELOW = 85
local TAKES_LARGE_BELOW = 95
-- A measurement older than this is repeated.
local MEASURED_MS = 1500

-- The arguments that every script which ends or moves a job takes, after its own: lane, settings, channel, and the error
-- of the result in short, for its event.
local COMMON = ' lane slots# job_ttl_s# kept_s# kept_failed_s# kept_dead_s# looked_at_s# memory_bytes# measures# channel message'

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Integers leave Lua as %d: some servers print round doubles in scientific notation.
local function int(n)
  return string.format('%d', n)
end

-- The whole number that a text of digits is; nil for anything else.
local function whole(text)
  return text and #text <= DIGITS_MAX and text:match('^%d+$') and tonumber(text) or nil
end
