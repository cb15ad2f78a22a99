#!lua flags=no-writes
-- What a subscription has to receive, and a number that changes when messages become available.
--
-- KEYS[1]  the queue's hash; reads the keys of the subscription
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- Returns  ok, the number, how many messages are ready, the lowest unsettled index
-- uses: runs queue reader
local q, refusal = begin()
if not q then
  return refusal
end
local s = load_reader(q, ARGV[3])
local came = s.filtered and s.matched_total or q.next - s.start
if #s.parent_names > 0 then
  came = runs_count(runs_within(s.key .. ':opened', 0, q.next))
end
for _, again in ipairs(redis.call('HMGET', s.key, 'leases_expired', 'replayed')) do
  came = came + tonumber(again or 0)
end
local waiting = s.key .. ':waiting'
local places = leased_count(s) + redis.call('ZCARD', s.key .. ':line')
  + redis.call('ZCOUNT', waiting, '(' .. text(q.now), '+inf') + runs_count(held_runs(q, s))
return {'ok', came, unsettled_count(q, s) - places, floor_of(q, s)}
