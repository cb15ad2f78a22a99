#!lua
-- Begins to rebuild a missing queue. It has no version until restore_readers.lua ends the rebuild,
-- so that until then nobody can use it or create another one of its name.
--
-- KEYS[1]  the queue's hash; removes what an earlier attempt left
-- ARGV[1]  packed: the fields of the queue, without those that restore_messages.lua writes
-- ARGV[2]  1 if its :former is left from an earlier attempt, too; or 0
-- ARGV[3]  a token that the further steps of this attempt have: those of an earlier one are refused
-- Returns  ok; or exists if the queue is not missing
-- uses: runs queue reader family
if redis.call('HEXISTS', KEYS[1], 'version') == 1 then
  redis.call('UNLINK', KEYS[1] .. ':former')
  return {'exists'}
end
for _, name in ipairs(words(redis.call('HGET', KEYS[1], 'subs') or '')) do
  drop_keys(KEYS[1] .. ':s:' .. name, READER_KEYS)
end
drop_keys(KEYS[1], QUEUE_KEYS)
if ARGV[2] == '1' then
  redis.call('UNLINK', KEYS[1] .. ':former')
end
call_many('HSET', KEYS[1], {}, cmsgpack.unpack(ARGV[1]))
redis.call('HSET', KEYS[1], 'attempt', ARGV[3])
return {'ok'}
