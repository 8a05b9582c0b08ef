// weight-rows.ts: rows of a stored weight as numbers.
import { codesOf, floatFormats } from '../../precision/float-formats.js'
import { nvfp4Block, precisionKernels } from '../../precision/kernels.js'
import { unpackWeight } from '../../weights/packed.js'
import type { Weight } from '../kernels.js'

/**
 * A function that gives row `r` of `stored` as f32. The array it returns is valid until the next call; it holds one
 * row, so no f32 copy of all rows ever exists.
 */
export function rowReader(stored: Weight): (r: number) => Float32Array {
  const weight = unpackWeight(stored)
  const { dtype, cols, data, rowScale, blockScale } = weight
  if (dtype === 'f32') return r => (data as Float32Array).subarray(r * cols, (r + 1) * cols)
  const row = new Float32Array(cols)
  if (dtype === 'nvfp4') {
    return r => {
      precisionKernels.nvfp4Dequantize({
        rows: 1,
        cols,
        tensorScale: weight.tensorScale!,
        packed: (data as Uint8Array).subarray((r * cols) / 2, ((r + 1) * cols) / 2),
        blockScale: blockScale!.subarray((r * cols) / nvfp4Block),
        dst: row,
      })
      return row
    }
  }
  if (dtype === 'i8') {
    return r => {
      for (let c = 0; c < cols; c++) row[c] = data[r * cols + c]! * rowScale![r]!
      return row
    }
  }
  const bits = codesOf(row)
  const { decode } = floatFormats[dtype]
  return r => {
    for (let c = 0; c < cols; c++) bits[c] = decode(data[r * cols + c]!)
    if (rowScale) for (let c = 0; c < cols; c++) row[c]! *= rowScale[r]!
    return row
  }
}
