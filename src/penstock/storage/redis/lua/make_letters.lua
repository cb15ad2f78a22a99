#!lua flags=allow-oom
-- Creates the dead-letter queue of a queue before the first dead letter, so that it can be altered.
--
-- KEYS[1]  the queue's hash; creates the keys of its dead-letter queue
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- Returns  ok
-- uses: runs queue reader letters
local q, refusal = begin()
if not q then
  return refusal
end
letters_of(q)
save()
return {'ok'}
