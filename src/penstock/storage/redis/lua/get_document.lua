#!lua flags=no-writes
-- A document, unless its version is known.
--
-- KEYS[1]  the document's hash
-- ARGV[1]  the version that is known
-- Answers  nothing if it is that one; else version and content, both empty if there is none
local found = redis.call('HMGET', KEYS[1], 'version', 'content')
local version = found[1] or ''
if version == ARGV[1] then
  return false
end
return {version, found[2] or ''}
