#!lua
-- Has publishers apply the filter of a subscription to come, so that none of the messages that
-- arrive while the older ones are put through it is missed.
--
-- KEYS[1]  the queue's hash; its field `pending` says what to apply
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  the version of the definitions
-- ARGV[3]  the version that follows
-- ARGV[4]  the id of the subscription to come
-- ARGV[5]  its filter
-- ARGV[6]  how long, in microseconds, an old reservation is kept for somebody who is still busy
-- ARGV[7]  kind of the start position
-- ARGV[8]  its value
-- Answers  ok, where the subscription starts, the index from which on the filter is applied
-- uses: runs queue reader family
local q, refusal = begin()
if not q then
  return refusal
end
local pending = cjson.decode(redis.call('HGET', q.key, 'pending') or '[]')
local kept = {}
for _, one in ipairs(pending) do
  if q.now - one[3] < tonumber(ARGV[6]) then
    kept[#kept + 1] = one
  else
    redis.call('UNLINK', q.key .. ':f:' .. one[1] .. ':matched')
  end
end
kept[#kept + 1] = {ARGV[4], ARGV[5], q.now}
redis.call('HSET', q.key, 'pending', cjson.encode(kept), 'version', ARGV[3])
save()
return {'ok', resolve_start(q, ARGV[7], ARGV[8]), q.next}
