#!lua flags=allow-oom
-- Leases the next messages, by priority and then index.
--
-- KEYS[1]  the queue's hash; reads its :stream, writes the keys of the subscription, and those of
--          every subscription for which messages have expired
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- ARGV[4]  the consumer in the consumer group
-- ARGV[5]  how many messages at most
-- ARGV[6]  the lease time in microseconds, or empty for that of the subscription
-- ARGV[7]  how many bytes at most, approximately, or empty
-- Returns  ok, the epoch of messages without an entry in :tries, the deadline or empty,
--          {index, deliveries, epoch, ...} of the others, {created, body, envelope, ...} or the
--          entries of dead letters, and the indexes, or only the first if they are consecutive
-- first: fast_receive
-- uses: runs queue reader letters time delivery
local q, refusal = begin()
if not q then
  return refusal
end
local s = load_reader(q, ARGV[3])
settle_what_is_due(q, s)
local room = math.min(tonumber(ARGV[5]), room_of(s))
if s.paused ~= '' or room <= 0 then
  finish()
  return NOTHING
end
local lease_us = tonumber(ARGV[6]) or s.lease
local answer
if read_ahead or s.plain and redis.call('EXISTS', s.key .. ':ready') == 0
    and (q.odd == '' or runs_stop(q.key .. ':odd') <= s.walk)
    and runs_stop(s.key .. ':settled') <= s.walk
    and (ARGV[7] == '' or q.source == '' and fits(q.stream, s.walk, room, q.bytes)) then
  -- The usual case: everything deliverable is ahead of the consumer group's own cursor.
  follow(s)
  local entries = read_ahead
  if not entries then
    local read = redis.call('XREADGROUP', 'GROUP', s.name, ARGV[4], 'COUNT', room, 'STREAMS',
      q.stream, '>')
    entries = read and read[1][2] or {}
  end
  if #entries > 0 then
    local start, stop = s.walk, entry_index(entries[#entries]) + 1
    put(s, 'walk', stop)
    put(s, 'top', math.max(s.top, stop))
    if stop - start == #entries then
      answer = fly(q, s, entries, start, stop, lease_us)
    else
      -- Somebody deleted entries from the stream: their messages cannot be delivered any more.
      local indexes = indexes_of(entries)
      settle(q, s, gaps(runs_of(indexes), start, stop), 'expired')
      answer = lease(q, s, ARGV[4], entries, indexes, lease_us, true)
    end
  end
else
  local runs = ready_runs(q, s, room)
  if ARGV[7] ~= '' then
    runs = within_bytes(q, runs, tonumber(ARGV[7]))
  end
  if #runs > 0 then
    answer = deliver(q, s, ARGV[4], runs, lease_us)
  end
end
finish()
return answer or NOTHING
