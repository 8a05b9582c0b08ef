// Casts and quantizers against the golden bytes of CUDA, ModelOpt and compressed-tensors, in every engine.
import type { DType, DTypeArray } from 'dgx-spark'
import t, { type Test } from 'tap'
import { dtypeArray } from '#lib/core/dtype.js'
import { e2m1, floatFormats } from '#lib/precision/float-formats.js'
import { goldenJson, goldenTensors, noGolden } from '../fixtures/golden-bytes.js'
import { cast, engines, fp8, type Matrix, nvfp4, runJs, sameBits } from '../fixtures/precision-engines.js'

type Lookup = ReturnType<typeof goldenTensors>

interface QuantizerCase {
  id: string
  file: string
  shape: number[]
  informational?: boolean
  s2_override?: number | null
}

const names: Record<string, DType> = { F32: 'f32', F16: 'f16', BF16: 'bf16' }

/** Tensor x of a case as a matrix: the leading dimensions together are the rows. */
function matrixOf(tensors: Lookup): Matrix {
  const x = tensors('x')
  const cols = x.shape[x.shape.length - 1]
  const src = x.data as DTypeArray
  return { srcDtype: names[x.dtype], src, rows: src.length / cols, cols }
}

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

t.test('nvfp4 equals ModelOpt', { skip: noGolden }, async t => {
  const { cases } = goldenJson<{ cases: QuantizerCase[] }>('nvfp4/cases.json')
  const recipes = cases.filter(one => !one.informational)
  t.ok(recipes.length >= 30, `${recipes.length} cases`)
  for (const one of recipes) {
    const tensors = goldenTensors(`nvfp4/${one.file}`)
    const scale = tensors('modelopt.scale_2').data as Float32Array
    const matrix = matrixOf(tensors)
    for (const [engine, run] of Object.entries(engines)) {
      const result = nvfp4(run, matrix, scale[0])
      const name = `${engine} ${one.id}`
      sameBits(t, result.blockScale, tensors('modelopt.scale').data as Uint8Array, `${name} scale`)
      sameBits(t, result.packed, tensors('modelopt.packed').data as Uint8Array, `${name} packed`)
      sameBits(t, result.dst, tensors('modelopt.dequant').data as Float32Array, `${name} dequant`)
    }
  }
})

t.test('fp8 per row equals ModelOpt and compressed-tensors', { skip: noGolden }, async t => {
  const { cases } = goldenJson<{ cases: QuantizerCase[] }>('fp8/cases.json')
  for (const one of cases) {
    const tensors = goldenTensors(`fp8/${one.file}`)
    const matrix = matrixOf(tensors)
    for (const [engine, run] of Object.entries(engines)) {
      if (matrix.srcDtype !== 'f32') twiceRoundedFP8(t, `${engine} ${one.id}`, run, matrix, tensors)
      else if (one.id.startsWith('one_zero_row'))
        exceptZeroRows(t, `${engine} ${one.id}`, run, matrix, tensors)
      else {
        const { codes, rowScale } = fp8(run, matrix)
        for (const peer of ['modelopt_channel', 'ct_channel']) {
          sameBits(t, codes, tensors(`${peer}.data`).data as Uint8Array, `${engine} ${one.id} ${peer} data`)
          sameBits(
            t,
            rowScale,
            tensors(`${peer}.scale`).data as Float32Array,
            `${engine} ${one.id} ${peer} scale`,
          )
        }
      }
    }
  }
})

type Engine = (typeof engines)[string]

/** Zero rows: ModelOpt divides 0 by 0; ours have scale 1 and codes 0. */
function exceptZeroRows(t: Test, name: string, run: Engine, matrix: Matrix, tensors: Lookup): void {
  const { cols } = matrix
  const { codes, rowScale } = fp8(run, matrix)
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
function twiceRoundedFP8(t: Test, name: string, run: Engine, matrix: Matrix, tensors: Lookup): void {
  const { srcDtype, src, rows, cols } = matrix
  const values = cast(run, src, srcDtype, 'f32') as Float32Array
  const ours = fp8(run, matrix)
  const scale = cast(run, ours.rowScale, 'f32', srcDtype)
  sameBits(t, scale, tensors('modelopt_channel.scale').data as DTypeArray, `${name} scale`)
  const scales = cast(run, scale, srcDtype, 'f32')
  const quotients = values.map((value, i) => value / scales[Math.trunc(i / cols)])
  const codes = cast(run, cast(run, quotients, 'f32', srcDtype), srcDtype, 'f8_e4m3')
  const peer = tensors('modelopt_channel.data').data as Uint8Array
  sameBits(t, codes, peer, `${name} data, rounded twice`)

  const error = (codes: Uint8Array, scales: DTypeArray): number => {
    const decoded = cast(run, codes, 'f8_e4m3', 'f32')
    return values.reduce((sum, value, i) => sum + (value - decoded[i] * scales[Math.trunc(i / cols)]) ** 2, 0)
  }
  t.equal(ours.rowScale.length, rows)
  const ratio = error(ours.codes, ours.rowScale) / error(peer, scales)
  t.ok(ratio < 1.02, `${name}: squared error ${ratio.toFixed(4)} of the peer's`)
}
