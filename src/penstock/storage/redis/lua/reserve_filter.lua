#!lua
-- Makes publishers apply the filter of a subscription that is about to be created, so that it
-- misses none of the messages that arrive while the older ones are filtered.
--
-- KEYS[1]  the queue's hash; adds to its field `pending`, which tells publishers
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the next version
-- ARGV[4]  the id of the subscription
-- ARGV[5]  its filter
-- ARGV[6]  the age in microseconds at which other reservations are dropped as abandoned
-- ARGV[7]  kind of the start position: earliest, latest, index or time
-- ARGV[8]  value of the start position
-- Returns  ok, the index where the subscription starts, the index from which on publishers apply
--          the filter
-- uses: runs queue reader family
local q, refusal = begin()
if not q then
  return refusal
end
local kept = drop_abandoned(q, tonumber(ARGV[6]))
kept[#kept + 1] = {ARGV[4], ARGV[5], q.now}
redis.call('HSET', q.key, 'pending', cjson.encode(kept), 'version', ARGV[3])
save()
return {'ok', resolve_start(q, ARGV[7], ARGV[8]), q.next}
