// weight-rows.ts: rows of a weight as numbers.
import { SparkError } from '../../core/errors.js'
import { codesOf, floatFormats } from '../../precision/float-formats.js'
import { nvfp4Block, precisionKernels } from '../../precision/kernels.js'
import { decodeBlockWeight } from '../../weights/blocks/decode-weight.js'
import { formatInfo, isBlockFormat } from '../../weights/formats.js'
import { inRows } from '../../weights/panels.js'
import type { Weight } from '../../weights/weight.js'

/**
 * A function that gives row `r` of a weight as f32. The array it returns is valid until the next call; it holds one
 * row, so no f32 copy of all rows ever exists.
 */
export function rowReader(stored: Weight): (r: number) => Float32Array {
  const weight = inRows(stored)
  const { format, cols, data } = weight
  if (format === 'f32') return r => (data as Float32Array).subarray(r * cols, (r + 1) * cols)
  if (isBlockFormat(format)) {
    const { block, length } = formatInfo(format)
    const bytes = (cols / block) * length
    return r => decodeBlockWeight(format, (data as Uint8Array).subarray(r * bytes, (r + 1) * bytes))
  }
  const row = new Float32Array(cols)
  if (format === 'nvfp4') {
    const { blockScale, tensorScale } = weight
    return r => {
      precisionKernels.nvfp4Dequantize({
        rows: 1,
        cols,
        tensorScale,
        packed: data.subarray((r * cols) / 2, ((r + 1) * cols) / 2),
        blockScale: blockScale.subarray((r * cols) / nvfp4Block),
        dst: row,
      })
      return row
    }
  }
  if (format === 'i8') {
    const { rowScale } = weight
    return r => {
      for (let c = 0; c < cols; c++) row[c] = data[r * cols + c]! * rowScale[r]!
      return row
    }
  }
  if (format === 'f8_e4m3_block') throw new SparkError('ERR_UNSUPPORTED', `kernels do not read ${format}`)
  const bits = codesOf(row)
  const { decode } = floatFormats[format]
  return r => {
    for (let c = 0; c < cols; c++) bits[c] = decode(data[r * cols + c]!)
    if (format === 'f8_e4m3') for (let c = 0; c < cols; c++) row[c]! *= weight.rowScale[r]!
    return row
  }
}
