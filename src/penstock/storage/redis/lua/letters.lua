#!lua flags=no-writes
-- Reads the unsettled dead letters of a queue.
--
-- KEYS[1]  the queue's hash; reads <queue>-dlq:letters and <queue>-dlq:stream
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the first index, in the dead-letter queue
-- ARGV[4]  how many at most
-- Returns  ok, entries
-- uses: runs queue
local q, refusal = begin()
if not q then
  return refusal
end
local start, indexes = tonumber(ARGV[3]), {}
for _, member in ipairs(redis.call('HKEYS', q.key .. '-dlq:letters')) do
  local index = tonumber(member)
  if index >= start then
    indexes[#indexes + 1] = index
  end
end
local letters = {stream = q.key .. '-dlq:stream'}
return {'ok', entries_of(letters, cut(runs_of(indexes), tonumber(ARGV[4])))}
