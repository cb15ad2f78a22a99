#!lua flags=allow-oom
-- Makes the queue of a queue's dead letters before there is any, so that it can be altered.
--
-- KEYS[1]  the queue's hash; makes that of its dead letters
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  the version of the definitions
-- Answers  ok
-- uses: runs queue reader letters
local q, refusal = begin()
if not q then
  return refusal
end
letters_of(q)
save()
return {'ok'}
