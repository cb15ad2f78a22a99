#!lua flags=no-writes
-- Whether a message may be deliverable now, and if not, when time alone makes one deliverable; and a
-- number that changes with all that arrives.
--
-- KEYS[1]  the queue's hash; reads the keys of the subscription
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- Returns  ok, 1 or 0, microseconds until then or -1 if time alone does not, the number
-- uses: runs queue reader
local q, refusal = begin()
if not q then
  return refusal
end
local s = load_reader(q, ARGV[3])
local arrivals = came(q, s)
for _, more in ipairs(redis.call('HMGET', s.key, 'leases_expired', 'replayed', 'news')) do
  arrivals = arrivals + tonumber(more or 0)
end
if s.paused ~= '' then
  return {'ok', 0, -1, arrivals}
end
local function first_of(suffix)
  local first = redis.call('ZRANGE', s.key .. suffix, 0, 0, 'WITHSCORES')
  return tonumber(first[2] or nil) or math.huge
end
local due = math.min(first_of(':leases'), first_of(':flights'))
if leased_count(s) < s.max_in_flight then
  if room_of(s) > 0 and #ready_runs(q, s, 1) > 0 then
    return {'ok', 1, 0, arrivals}
  end
  due = math.min(due, first_of(':waiting'))
end
if due == math.huge then
  return {'ok', 0, -1, arrivals}
end
return {'ok', due <= q.now and 1 or 0, math.max(due - q.now, 0), arrivals}
