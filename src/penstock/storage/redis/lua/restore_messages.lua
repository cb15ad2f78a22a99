#!lua
-- Restores messages of a queue that is being rebuilt, each at its own index.
--
-- KEYS[1]  the queue's hash; writes its :stream, :odd, :special, :expires, :expiring, :dedup and
--          :dedup_times
-- ARGV[1]  packed: {position = {priority, due, group, expiry, dedup key}} of messages that have any
-- ARGV[2…] packed: {index, bytes, field, value, ...} of each message, with the fields of its entry
--          in the stream but for `s`, which is added after the first
-- Returns  ok
-- uses: runs queue reader
local q = load_queue(KEYS[1])
local extras = ARGV[1] ~= '' and cmsgpack.unpack(ARGV[1]) or {}
for at = 2, #ARGV do
  local message = cmsgpack.unpack(ARGV[at])
  local index, created = message[1], message[4]
  redis.call('XADD', q.stream, entry_id(index), 't', created, 's', text(q.bytes),
    unpack(message, 5))
  put(q, 'bytes', q.bytes + message[2])
  put(q, 'next', math.max(q.next, index + 1))
  local extra = extras[at - 1]
  if extra then
    set_apart(q, index, created, extra, extra[2])
  end
end
save()
return {'ok'}
