#!lua
-- Makes a queue with its default subscription, and the queue that its events are told in, if it has any.
--
-- KEYS[1]  the queue's hash; makes its stream and the hash of the subscription `default`
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  packed: fields of the queue, fields of the subscription, and the same of its dead letters;
--          and all of that for its events queue, which has no subscription, or false
-- Answers  ok, exists, or taken if there is a queue of the name of its events queue
-- uses: runs queue reader letters
if redis.call('EXISTS', KEYS[1]) == 1 then
  return {'exists'}
end
local clock = {key = KEYS[1], now = 0, unsaved = {}}
set_time(clock, ARGV[1])
local as = cmsgpack.unpack(ARGV[2])
if as[5] and not make_events(KEYS[1] .. '-events', as[5], clock.now) then
  return {'taken'}
end
make_with_letters(KEYS[1], as, clock.now)
save()
return {'ok'}
