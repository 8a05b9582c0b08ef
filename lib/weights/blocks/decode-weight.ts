// decode-weight.ts: weights in block formats as f32.
import { floatFormats } from '../../precision/float-formats.js'
import {
  type BlockWeightFormat,
  formatInfo,
  type GroupWeightFormat,
  ggufName,
  isGroupFormat,
} from '../formats.js'
import { decodeBlocks } from './decode.js'
import { blockLayouts } from './layouts.js'

/** The numbers of whole blocks. Each operation rounds to f32. */
export function decodeBlockWeight(format: BlockWeightFormat, bytes: Uint8Array): Float32Array {
  return isGroupFormat(format) ? decodeGroups(format, bytes) : decodeBlocks(ggufName(format), bytes)
}

/** The numbers of groups: (code − zero point) · scale, or the E4M3 number · scale. */
function decodeGroups(format: GroupWeightFormat, bytes: Uint8Array): Float32Array {
  const { block, length } = formatInfo(format)
  const { bits, min } = blockLayouts[format]
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const out = new Float32Array((bytes.length / length) * block)
  const codes = 4 + (min?.length ?? 0)
  for (let at = 0, to = 0; to < out.length; at += length, to += block) {
    const scale = view.getFloat32(at, true)
    const zero = !min ? 0 : min.length === 4 ? view.getFloat32(at + 4, true) : bytes[at + 4]!
    for (let i = 0; i < block; i++) {
      const code =
        bits[0] === 8 ? bytes[at + codes + i]! : (bytes[at + codes + (i >> 1)]! >> ((i & 1) * 4)) & 15
      out[to + i] = Math.fround(min ? code - zero : e4m3(code)) * scale
    }
  }
  return out
}

const numbers = new Float32Array(
  Uint32Array.from({ length: 256 }, (_, code) => floatFormats.f8_e4m3.decode(code)).buffer,
)
const e4m3 = (code: number): number => numbers[code]!
