// Casts and quantizers against the golden bytes of CUDA, ModelOpt and compressed-tensors, in every engine.
import type { DType, DTypeArray } from 'dgx-spark'
import t, { type Test } from 'tap'
import { dtypeArray } from '#lib/core/dtype.js'
import { e2m1, floatFormats } from '#lib/precision/float-formats.js'
import { cast, engines, fp8, type Matrix, runJs, sameBits } from '../fixtures/precision-engines.js'
import {
  goldenJson,
  goldenTensors,
  type Lookup,
  matrixOf,
  noGolden,
  type QuantizerCase,
} from '../fixtures/values/golden-bytes.js'

const castColumns: [column: string, dtype: DType, saturate: boolean][] = [
  ['f16', 'f16', true],
  ['bf16', 'bf16', true],
  ['e4m3fn_sat', 'f8_e4m3', true],
  ['e4m3fn_nosat', 'f8_e4m3', false],
  ['e5m2_sat', 'f8_e5m2', true],
  ['e5m2_nosat', 'f8_e5m2', false],
]

function testCasts(t: Test, tensors: Lookup, src: DTypeArray, from: DType): void {
  for (const [engine, run] of Object.entries(engines)) {
    for (const [column, to, saturate] of castColumns) {
      const expected = tensors(column).data as DTypeArray
      sameBits(t, cast(run, src, from, to, saturate), expected, `${engine} ${from} > ${column}`, src)
    }
  }
  const bits = new Uint32Array(cast(runJs, src, from, 'f32').buffer)
  const codes = Uint8Array.from(bits, value => e2m1.encode(value, e2m1.limit(true)))
  sameBits(t, codes, tensors('e2m1_sat').data as Uint8Array, `${from} > e2m1_sat`, src)
}

t.test('casts of f32 samples', { skip: noGolden }, async t => {
  const tensors = goldenTensors('casts/f32_samples.safetensors')
  const bits = (tensors('f32_bits').data as Uint32Array).slice()
  testCasts(t, tensors, new Float32Array(bits.buffer), 'f32')
})

t.test('casts of all f16 patterns', { skip: noGolden }, async t => {
  const tensors = goldenTensors('casts/f16_exhaustive.safetensors')
  testCasts(t, tensors, tensors('f16_bits').data as Uint16Array, 'f16')
})

t.test('decode tables', { skip: noGolden }, async t => {
  const tensors = goldenTensors('casts/decode_tables.safetensors')
  for (const [column, dtype] of [
    ['e4m3fn', 'f8_e4m3'],
    ['e5m2', 'f8_e5m2'],
    ['f16', 'f16'],
  ] as const) {
    const expected = tensors(column).data as Float32Array
    const codes = dtypeArray(dtype, expected.length)
    for (let code = 0; code < codes.length; code++) codes[code] = code
    // The peers keep the payload and the sign of a NaN; ours has one pattern.
    const canonical = new Uint32Array(expected.slice().buffer).map(bits => floatFormats.f32.encode(bits, 0))
    for (const [engine, run] of Object.entries(engines)) {
      sameBits(
        t,
        cast(run, codes, dtype, 'f32'),
        new Float32Array(canonical.buffer),
        `${engine} ${column}`,
        codes,
      )
    }
  }
  const e2m1Bits = Uint32Array.from({ length: 16 }, (_, code) => e2m1.decode(code))
  sameBits(t, new Float32Array(e2m1Bits.buffer), tensors('e2m1').data as Float32Array, 'e2m1')
})

t.test('fp8 equals ModelOpt and compressed-tensors', { skip: noGolden }, async t => {
  const { cases } = goldenJson<{ cases: FP8Case[] }>('fp8/cases.json')
  for (const one of cases) {
    const tensors = goldenTensors(`fp8/${one.file}`)
    const matrix = matrixOf(tensors)
    for (const [engine, run] of Object.entries(engines)) {
      for (const scaling of scalingsOf(one, matrix)) {
        const name = `${engine} ${one.id} ${scaling.peers[0]}`
        if (matrix.srcDtype !== 'f32') twiceRoundedFP8(t, name, run, matrix, scaling, tensors)
        else if (one.id.startsWith('one_zero_row') && scaling.blockRows === 1)
          exceptZeroRows(t, name, run, matrix, tensors)
        else {
          const { codes, scale } = fp8(run, matrix, scaling.blockRows, scaling.blockCols)
          for (const peer of scaling.peers) {
            sameBits(t, codes, tensors(`${peer}.data`).data as Uint8Array, `${name} data of ${peer}`)
            sameBits(t, scale, tensors(`${peer}.scale`).data as Float32Array, `${name} scale of ${peer}`)
          }
        }
      }
    }
  }
})

interface FP8Case extends QuantizerCase {
  /** Rows and columns of a block, where the peer has quantized by blocks. */
  block: number | null
}

/** Blocks that share a scale, and the prefixes of the golden tensors made with them. */
interface Scaling {
  blockRows: number
  blockCols: number
  peers: [string, ...string[]]
}

function scalingsOf({ block }: FP8Case, { rows, cols }: Matrix): Scaling[] {
  const byBlock: Scaling[] = block ? [{ blockRows: block, blockCols: block, peers: ['modelopt_block'] }] : []
  return [
    { blockRows: 1, blockCols: cols, peers: ['modelopt_channel', 'ct_channel'] },
    { blockRows: rows, blockCols: cols, peers: ['modelopt_tensor', 'ct_tensor'] },
    ...byBlock,
  ]
}

type Engine = (typeof engines)[string]

/** Zero rows: ModelOpt divides 0 by 0; ours have scale 1 and codes 0. */
function exceptZeroRows(t: Test, name: string, run: Engine, matrix: Matrix, tensors: Lookup): void {
  const { cols } = matrix
  const { codes, scale: rowScale } = fp8(run, matrix)
  const data = (tensors('modelopt_channel.data').data as Uint8Array).slice()
  const scale = (tensors('modelopt_channel.scale').data as Float32Array).slice()
  let zeroRows = 0
  for (let row = 0; row < matrix.rows; row++) {
    if (scale[row] !== 0) continue
    zeroRows++
    scale[row] = 1
    data.fill(0, row * cols, (row + 1) * cols)
  }
  t.ok(zeroRows > 0, `${name} has zero rows`)
  sameBits(t, codes, data, `${name} data`)
  sameBits(t, rowScale, scale, `${name} scale`)
}

/**
 * For f16 and bf16 the peers round the scale and the quotient to that format first; ours round once. Their bytes come
 * out of our casts when those roundings are put in.
 */
function twiceRoundedFP8(
  t: Test,
  name: string,
  run: Engine,
  matrix: Matrix,
  { blockRows, blockCols, peers: [peer] }: Scaling,
  tensors: Lookup,
): void {
  const { srcDtype, src, cols } = matrix
  const values = cast(run, src, srcDtype, 'f32') as Float32Array
  const ours = fp8(run, matrix, blockRows, blockCols)
  const scale = cast(run, ours.scale, 'f32', srcDtype)
  sameBits(t, scale, tensors(`${peer}.scale`).data as DTypeArray, `${name} scale`)
  const scales = cast(run, scale, srcDtype, 'f32')
  const across = Math.ceil(cols / blockCols)
  const blockOf = (i: number): number =>
    Math.trunc(i / cols / blockRows) * across + Math.trunc((i % cols) / blockCols)
  const quotients = values.map((value, i) => value / scales[blockOf(i)])
  const codes = cast(run, cast(run, quotients, 'f32', srcDtype), srcDtype, 'f8_e4m3')
  const peerCodes = tensors(`${peer}.data`).data as Uint8Array
  sameBits(t, codes, peerCodes, `${name} data, rounded twice`)

  const error = (codes: Uint8Array, scales: DTypeArray): number => {
    const decoded = cast(run, codes, 'f8_e4m3', 'f32')
    return values.reduce((sum, value, i) => sum + (value - decoded[i] * scales[blockOf(i)]) ** 2, 0)
  }
  const ratio = error(ours.codes, ours.scale) / error(peerCodes, scales)
  t.ok(ratio < 1.02, `${name}: squared error ${ratio.toFixed(4)} of the peer's`)
}
