#!lua
-- Puts messages back into a queue that is being rebuilt, each at its own index.
--
-- KEYS[1]  the queue's hash; writes its :stream, :odd, :special, :expires, :expiring, :dedup and
--          :dedup_times
-- ARGV[1]  packed: by position, {priority, due, group, expiry, dedup key} of messages that have any
-- ARGV[2…] packed: {index, bytes, field, value, ...} of each, in the order of the stream's entries but
--          for `s`, which is put in second place
-- Answers  ok
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
    local priority, due, group = extra[1], extra[2], q.fifo ~= '' and extra[3] or ''
    if priority > 0 or due > 0 or group ~= '' then
      put(q, 'odd', '1')
      runs_add(q.key .. ':odd', index, index + 1)
      redis.call('HSET', q.key .. ':special', text(index),
        priority .. ':' .. text(due) .. ':' .. group)
    end
    if extra[4] ~= '' then
      set_expiry(q, index, extra[4])
    end
    if extra[5] ~= '' then
      redis.call('HSET', q.key .. ':dedup', extra[5], text(index) .. ':' .. created)
      redis.call('ZADD', q.key .. ':dedup_times', created, 'm' .. extra[5])
    end
  end
end
save()
return {'ok'}
