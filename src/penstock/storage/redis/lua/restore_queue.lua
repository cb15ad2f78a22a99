#!lua
-- Begins to rebuild a queue that is not there. Until it is finished it has no version, so nobody can
-- use it, nor make another of its name.
--
-- KEYS[1]  the queue's hash; removes what an earlier attempt left
-- ARGV[1]  packed: the fields of the queue, without those that the messages bring about
-- Answers  ok, or exists
-- uses: runs queue reader family
if redis.call('HEXISTS', KEYS[1], 'version') == 1 then
  return {'exists'}
end
for _, name in ipairs(words(redis.call('HGET', KEYS[1], 'subs') or '')) do
  drop_keys(KEYS[1] .. ':s:' .. name, READER_KEYS)
end
drop_keys(KEYS[1], QUEUE_KEYS)
call_many('HSET', KEYS[1], {}, cmsgpack.unpack(ARGV[1]))
return {'ok'}
