// Casts and NVFP4 on the GPU give the golden bytes of CUDA and ModelOpt (DGX_SPARK_TEST_DATA).
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { parseSafetensors } from 'dgx-spark'
import { openKernels } from 'dgx-spark/kernels'
import { dtypeArray } from '#lib/core/dtype.js'
import { gpuTests } from '../fixtures/gpu-suite/gpu.js'

/** @import { DType, DTypeArray } from 'dgx-spark' */
/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */

/** @typedef {{ id: string, file: string, informational?: boolean }} QuantizerCase */

const root = process.env.DGX_SPARK_TEST_DATA ?? ''
/** @type {Record<string, DType>} */
const dtypes = { F32: 'f32', F16: 'f16', BF16: 'bf16' }

/** @param {string} file */
function golden(file) {
  const { tensors } = parseSafetensors(readFileSync(path.join(root, file)), file)
  return (/** @type {string} */ name) => {
    const tensor = tensors.get(name)
    if (!tensor) throw new Error(`${file} has no tensor ${name}`)
    return { ...tensor, data: /** @type {DTypeArray} */ (tensor.data) }
  }
}

/** @param {Claims} t @param {DTypeArray} actual @param {DTypeArray} expected @param {string} name */
function sameBytes(t, actual, expected, name) {
  const bytes = (/** @type {DTypeArray} */ { buffer, byteOffset, byteLength }) =>
    new Uint8Array(buffer, byteOffset, byteLength)
  const [a, b] = [bytes(actual), bytes(expected)]
  const at = b.findIndex((byte, i) => byte !== a[i])
  t.ok(a.length === b.length && at === -1, name, `byte ${at} is ${a[at]} and should be ${b[at]}`)
}

/** @param {Claims} t */
async function nvfp4(t) {
  const kernels = await openKernels({ backend: 'cuda' })
  /** @type {{ cases: QuantizerCase[] }} */
  const { cases } = JSON.parse(readFileSync(path.join(root, 'nvfp4/cases.json'), 'utf8'))
  for (const { id, file, informational } of cases) {
    if (informational) continue
    const tensors = golden(`nvfp4/${file}`)
    const x = tensors('x')
    const cols = x.shape.at(-1) ?? 0
    const count = x.data.length
    const rows = count / cols
    const tensorScale = tensors('modelopt.scale_2').data[0] ?? 0
    const srcDtype = dtypes[x.dtype] ?? 'f32'
    const [packed, blockScale] = [new Uint8Array(count / 2), new Uint8Array(count / 16)]
    const dst = new Float32Array(count)
    await kernels.run('nvfp4Quantize', { srcDtype, rows, cols, src: x.data, tensorScale, packed, blockScale })
    await kernels.run('nvfp4Dequantize', { rows, cols, tensorScale, packed, blockScale, dst })
    sameBytes(t, blockScale, tensors('modelopt.scale').data, `${id} scale`)
    sameBytes(t, packed, tensors('modelopt.packed').data, `${id} packed`)
    sameBytes(t, dst, tensors('modelopt.dequant').data, `${id} dequant`)
  }
}

/** @type {[column: string, dtype: DType, saturate: boolean][]} */
const columns = [
  ['f16', 'f16', true],
  ['bf16', 'bf16', true],
  ['e4m3fn_sat', 'f8_e4m3', true],
  ['e4m3fn_nosat', 'f8_e4m3', false],
  ['e5m2_sat', 'f8_e5m2', true],
  ['e5m2_nosat', 'f8_e5m2', false],
]

/** @param {Claims} t @param {string} file @param {string} column of the source @param {DType} srcDtype */
async function casts(t, file, column, srcDtype) {
  const kernels = await openKernels({ backend: 'cuda' })
  const tensors = golden(file)
  const stored = tensors(column).data
  const src = srcDtype === 'f32' ? new Float32Array(stored.slice().buffer) : stored
  for (const [name, dstDtype, saturate] of columns) {
    const dst = dtypeArray(dstDtype, src.length)
    await kernels.run('cast', { srcDtype, dstDtype, count: src.length, saturate, src, dst })
    sameBytes(t, dst, tensors(name).data, `${srcDtype} > ${name}`)
  }
}

/** Skips without the file. @param {string} file @param {(t: Claims) => unknown} body */
const needs = (file, body) => (/** @type {Claims} */ t) =>
  existsSync(path.join(root, file)) ? body(t) : t.skip(file, 'DGX_SPARK_TEST_DATA has no such file')

const [samples, exhaustive] = ['casts/f32_samples.safetensors', 'casts/f16_exhaustive.safetensors']
await gpuTests({
  nvfp4: needs('nvfp4/cases.json', nvfp4),
  'casts of f32 samples': needs(samples, t => casts(t, samples, 'f32_bits', 'f32')),
  'casts of all f16 patterns': needs(exhaustive, t => casts(t, exhaustive, 'f16_bits', 'f16')),
})
