// nvfp4.ts: NVFP4 of GGUF, whose scales lie in front of their codes, in the layout that kernels read.
import { SparkError } from '../../core/errors.js'
import type { NVFP4Weight } from '../../precision/nvfp4.js'
import { blockFormats } from './formats.js'

const { elements, bytes: blockBytes } = blockFormats.NVFP4
const runsOfBlock = elements / 16

/** Number of an unsigned E4M3 scale that is none; the decoder takes it as 0. */
const notANumber = 0x7f

/**
 * The same numbers, times a scale of all of them: scales by themselves, and neighbours in one byte. A block has 4 scales in unsigned
 * E4M3, then 8 bytes for each 16 elements, of which the high nibbles are the second half.
 * @throws SparkError ERR_FORMAT for a scale of 480, which is no number of E4M3
 */
export function nvfp4OfBlocks(
  rows: number,
  cols: number,
  blocks: Uint8Array,
  tensorScale: number,
): NVFP4Weight {
  const data = new Uint8Array((rows * cols) / 2)
  const blockScale = new Uint8Array((rows * cols) / 16)
  for (let at = 0, run = 0; at < blocks.length; at += blockBytes) {
    for (let i = 0; i < runsOfBlock; i++, run++) {
      blockScale[run] = scaleOf(blocks[at + i]!)
      const [from, to] = [at + runsOfBlock + 8 * i, 8 * run]
      for (let pair = 0; pair < 4; pair++) {
        const [even, odd] = [blocks[from + 2 * pair]!, blocks[from + 2 * pair + 1]!]
        data[to + pair] = (even & 15) | ((odd & 15) << 4)
        data[to + 4 + pair] = (even >> 4) | (odd & 0xf0)
      }
    }
  }
  return { format: 'nvfp4', rows, cols, data, blockScale, tensorScale }
}

/** The code without its sign, which unsigned E4M3 has not. */
function scaleOf(code: number): number {
  if (code === 0xff)
    throw new SparkError('ERR_FORMAT', 'a block of NVFP4 has the scale 480; E4M3 ends at 448')
  return code === notANumber ? 0 : code & 0x7f
}
