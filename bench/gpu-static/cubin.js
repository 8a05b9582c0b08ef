// cubin.js: kernels in the machine code (ELF) of a fatbin, with what ptxas noted of them in sections and .nv.info attributes.
import { decompress } from 'fzstd'

/**
 * @typedef {object} Kernel
 * @property {string} name
 * @property {number} registers of a thread
 * @property {number} local bytes of local memory of a thread: its stack, where spilled registers go
 * @property {number} shared bytes of static shared memory
 * @property {number | undefined} threads of a block, at most, by `__launch_bounds__`
 * @property {DataView} code
 */

/** @typedef {{ name: string, offset: number, size: number }} Section */

const machineCode = 2
const compression = { any: 0xf000n, zstd: 0x8000n }
const attributes = { maxThreads: 0x05, requiredThreads: 0x10, stack: 0x12, registers: 0x2f }
const valueBehind = 4

/** @param {Uint8Array} bytes */
const viewOf = bytes => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)

/** The kernels of a fatbin for compute capability `capability` (90 for 9.0). @param {Uint8Array} fatbin @param {number} capability */
export function kernelsOfFatbin(fatbin, capability) {
  const view = viewOf(fatbin)
  const end = 16 + Number(view.getBigUint64(8, true))
  /** @type {Kernel[]} */
  const kernels = []
  for (let at = 16; at < end; ) {
    const data = at + view.getUint32(at + 4, true)
    const bytes = Number(view.getBigUint64(at + 8, true))
    if (view.getUint16(at, true) === machineCode && view.getUint32(at + 28, true) === capability)
      kernels.push(...kernelsOf(unpacked(fatbin, data, bytes, view, at)))
    at = data + bytes
  }
  return kernels
}

/** @param {Uint8Array} fatbin @param {number} data @param {number} bytes @param {DataView} view @param {number} entry */
function unpacked(fatbin, data, bytes, view, entry) {
  const flags = view.getBigUint64(entry + 40, true)
  if (!(flags & compression.any)) return fatbin.subarray(data, data + bytes)
  if (!(flags & compression.zstd)) throw new Error('the compression of this fatbin is not zstd')
  return decompress(fatbin.subarray(data, data + view.getUint32(entry + 16, true)))
}

/** @param {DataView} view @param {number} at */
function textAt(view, at) {
  let text = ''
  for (let code = view.getUint8(at); code !== 0; code = view.getUint8(++at)) text += String.fromCharCode(code)
  return text
}

/** @param {DataView} view @returns {Section[]} */
function sectionsOf(view) {
  const [table, count, names] = [
    Number(view.getBigUint64(0x28, true)),
    view.getUint16(0x3c, true),
    view.getUint16(0x3e, true),
  ]
  const headers = Array.from({ length: count }, (_, i) => ({
    name: view.getUint32(table + i * 64, true),
    offset: Number(view.getBigUint64(table + i * 64 + 24, true)),
    size: Number(view.getBigUint64(table + i * 64 + 32, true)),
  }))
  const text = /** @type {Section} */ (/** @type {unknown} */ (headers[names])).offset
  return headers.map(header => ({ ...header, name: textAt(view, text + header.name) }))
}

/** Attributes of a section with their values. @param {DataView} view @param {Section} section */
function* attributesOf(view, { offset, size }) {
  for (let at = offset; at < offset + size; ) {
    const [format, attribute] = [view.getUint8(at), view.getUint8(at + 1)]
    const bytes = format === valueBehind ? view.getUint16(at + 2, true) : 0
    yield {
      attribute,
      words: Array.from({ length: bytes >> 2 }, (_, i) => view.getUint32(at + 4 + i * 4, true)),
    }
    at += 4 + bytes
  }
}

/** Values of attributes of the module by kernel. @param {DataView} view @param {(name: string) => Section} find */
function notesOf(view, find) {
  const [symbols, names] = [find('.symtab'), find('.strtab')]
  /** @type {Map<string, { registers: number, local: number }>} */
  const notes = new Map()
  for (const { attribute, words } of attributesOf(view, find('.nv.info'))) {
    const [symbol = 0, value = 0] = words
    const kind =
      attribute === attributes.registers ? 'registers' : attribute === attributes.stack ? 'local' : undefined
    if (!kind) continue
    const name = textAt(view, names.offset + view.getUint32(symbols.offset + symbol * 24, true))
    notes.set(name, { registers: 0, local: 0, ...notes.get(name), [kind]: value })
  }
  return notes
}

/** @param {Uint8Array} cubin @returns {Kernel[]} */
function kernelsOf(cubin) {
  const view = viewOf(cubin)
  const sections = new Map(sectionsOf(view).map(section => [section.name, section]))
  const find = (/** @type {string} */ name) => /** @type {Section} */ (sections.get(name))
  const notes = notesOf(view, find)
  const names = [...sections.keys()].flatMap(name => name.match(/^\.nv\.constant0\.(.*)/)?.[1] ?? [])
  return names.map(name => {
    const bounds = [...attributesOf(view, find(`.nv.info.${name}`))].find(
      ({ attribute }) => attribute === attributes.maxThreads || attribute === attributes.requiredThreads,
    )
    const { offset, size } = find(`.text.${name}`)
    return {
      name,
      registers: 0,
      local: 0,
      ...notes.get(name),
      shared: sections.get(`.nv.shared.${name}`)?.size ?? 0,
      threads: bounds?.words.slice(0, 3).reduce((count, side) => count * side, 1),
      code: new DataView(view.buffer, view.byteOffset + offset, size),
    }
  })
}
