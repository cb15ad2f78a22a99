#!lua
-- Makes a queue with its default subscription.
--
-- KEYS[1]  the queue's hash; makes its stream and the hash of the subscription `default`
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  packed: fields of the queue, fields of the subscription, and the same of its dead letters
-- Answers  ok, or exists
-- uses: runs queue reader letters
if redis.call('EXISTS', KEYS[1]) == 1 then
  return {'exists'}
end
local clock = {key = KEYS[1], now = 0, unsaved = {}}
set_time(clock, ARGV[1])
local as = cmsgpack.unpack(ARGV[2])
make_queue(KEYS[1], as[1], as[2], clock.now)
redis.call('HSET', KEYS[1], 'letters_as', cmsgpack.pack({as[3], as[4]}))
save()
return {'ok'}
