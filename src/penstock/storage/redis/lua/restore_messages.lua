#!lua
-- Restores messages of a queue that is being rebuilt, each at its own index.
--
-- KEYS[1]  the queue's hash; writes its :stream, :odd, :special, :expires, :expiring, :dedup and
--          :dedup_times; shortens its :former to what follows
-- ARGV[1]  the token of restore_queue.lua
-- ARGV[2]  the index from which on to compare with the :former stream, or empty
-- ARGV[3]  packed: {position = {priority, due, group, expiry, dedup key}} of messages that have any
-- ARGV[4…] packed: {index, bytes, field, value, ...} of each message, with the fields of its entry
--          in the stream but for `s`, which is added after the first
-- Returns  the indexes of messages that the :former stream does not have; nil if the queue is lost
--          again, or another attempt rebuilds it
-- uses: runs queue reader
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then
  return nil
end
local q = load_queue(KEYS[1])
local had_from = tonumber(ARGV[2])
local extras = ARGV[3] ~= '' and cmsgpack.unpack(ARGV[3]) or {}
local former, lost = q.key .. ':former', {}
for at = 4, #ARGV do
  local message = cmsgpack.unpack(ARGV[at])
  local index, created = message[1], message[4]
  redis.call('XADD', q.stream, entry_id(index), 't', created, 's', text(q.bytes),
    unpack(message, 5))
  put(q, 'bytes', q.bytes + message[2])
  put(q, 'next', math.max(q.next, index + 1))
  if had_from and index >= had_from then
    local entry = redis.call('XRANGE', former, entry_id(index), entry_id(index))[1]
    if not entry or entry_field(entry, 't') ~= created then
      lost[#lost + 1] = index
    end
  end
  local extra = extras[at - 3]
  if extra then
    set_apart(q, index, created, extra, extra[2])
  end
end
if had_from then
  redis.call('XTRIM', former, 'MINID', '=', entry_id(q.next))
end
save()
return lost
