// tar.js: the files of a .tar.gz of cases. POSIX ustar: 512-byte headers (name at 0, size in octal at 124, type at
// 156, prefix at 345), each followed by the content, padded to 512 bytes.
import { readFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'

/**
 * @param {string} path - of a .tar.gz
 * @returns {Map<string, Uint8Array>} contents by name
 */
export function readTar(path) {
  const bytes = gunzipSync(readFileSync(path))
  const files = new Map()
  const text = (/** @type {number} */ from, /** @type {number} */ length) =>
    bytes.toString('utf8', from, from + length).replace(/\0.*$/s, '')
  for (let at = 0; at + 512 <= bytes.length && bytes[at] !== 0; ) {
    const size = Number.parseInt(text(at + 124, 12), 8)
    const prefix = text(at + 345, 155)
    const name = prefix ? `${prefix}/${text(at, 100)}` : text(at, 100)
    if (text(at + 156, 1) !== '5') files.set(name, bytes.subarray(at + 512, at + 512 + size))
    at += 512 + Math.ceil(size / 512) * 512
  }
  return files
}
