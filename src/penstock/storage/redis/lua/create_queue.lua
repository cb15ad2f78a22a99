#!lua
-- Creates a queue with its `default` subscription and, if it is to have one, its events queue.
--
-- KEYS[1]  the queue's hash; creates its :stream and the hash of its `default` subscription
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  packed: {fields of the queue, fields of its `default`, the same two for its dead-letter
--          queue, events queue}. The last is false, or those four for the events queue, which has
--          false instead of a `default`.
-- Returns  ok; exists; or taken if another queue has the name of the events queue
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
