#!lua flags=allow-oom
-- Settles every message for every subscription, and removes all that no dead letter refers to.
--
-- KEYS[1]  the queue's hash; writes all its keys
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- Returns  ok, and how many messages were removed
-- uses: runs queue reader letters time
local q, refusal = begin()
if not q then
  return refusal
end
local function held()
  return q.next - q.first + redis.call('ZCARD', q.key .. ':stragglers')
end
local before = held()
for _, s in ipairs(each_reader(q)) do
  local runs = unsettled_within(q, s, 0, q.next)
  if #runs > 0 then
    settle(q, s, runs, 'purged')
  end
end
if q.first < q.next then
  trim_to(q, q.next)
end
local purged = before - held()
q.counts = {purged = purged}
finish()
return {'ok', purged}
