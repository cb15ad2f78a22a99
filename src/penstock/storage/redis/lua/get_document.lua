#!lua flags=no-writes
-- Reads a document, unless the server has its current version.
--
-- KEYS[1]  the document's hash
-- ARGV[1]  the version that the server has
-- Returns  nil if that is the current one; otherwise version and content, both empty if there is no
--          document
local found = redis.call('HMGET', KEYS[1], 'version', 'content')
local version = found[1] or ''
if version == ARGV[1] then
  return false
end
return {version, found[2] or ''}
