#!lua flags=no-writes
-- Reads the beginning of an index range, up to a number of bytes.
--
-- KEYS[1]  the queue's hash; reads its :stream and :stragglers
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the first index
-- ARGV[4]  the index to stop before
-- ARGV[5]  how many bytes; the batch that reaches this is the last
-- Returns  ok, entries, the index to continue from
-- uses: runs queue
local MOST_ENTRIES = 4096
local q, refusal = begin()
if not q then
  return refusal
end
local start, stop = tonumber(ARGV[3]), math.min(tonumber(ARGV[4]), q.next)
if start < q.first then
  -- Older messages that are still needed are stragglers.
  local aside = redis.call('ZRANGEBYSCORE', q.key .. ':stragglers', text(start),
    '(' .. text(stop), 'LIMIT', 0, MOST_ENTRIES + 1)
  if #aside > 0 then
    local following, older = tonumber(aside[MOST_ENTRIES + 1]) or q.first, {}
    for at = 1, math.min(#aside, MOST_ENTRIES) do
      older[at] = tonumber(aside[at])
    end
    return {'ok', entries_of(q, runs_of(older)), following}
  end
  start = q.first
end
if start >= stop then
  return {'ok', {}, math.max(start, stop)}
end
local entries, bytes, last = {}, 0, nil
while start < stop and bytes < tonumber(ARGV[5]) and #entries < MOST_ENTRIES do
  local part = redis.call('XRANGE', q.stream, text(start), text(stop - 1), 'COUNT', 256)
  if #part == 0 then
    start = stop
  end
  for _, entry in ipairs(part) do
    local batch = entry_field(entry, 's')
    if bytes >= tonumber(ARGV[5]) and batch ~= last then
      return {'ok', entries, start}
    end
    entries[#entries + 1] = entry
    bytes = bytes + #entry_field(entry, 'b') + #(entry_field(entry, 'h') or '')
    last = batch
    start = entry_index(entry) + 1
  end
end
return {'ok', entries, start}
