// Casts and quantizers give the bits of the TypeScript code in every instruction set that this machine has. The
// choice is made once in a process, so each set gets one of its own.

import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { scriptResult } from '../fixtures/child.js'

const state = loadAddon()
const root = path.resolve(import.meta.dirname, '../..')

/** Prints a digest of the results of all formats and recipes, of the addon and of TypeScript. */
const script = `
import { createHash } from 'node:crypto'
import { dtypeArray, dtypes } from '#lib/core/dtype.js'
import { loadAddon } from '#lib/native.js'
import { precisionKernels } from '#lib/precision/kernels.js'

const { addon } = loadAddon()
let state = 88172645
const next = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0)
const digest = run => {
  state = 88172645
  const hash = createHash('sha256')
  const add = array => hash.update(new Uint8Array(array.buffer))
  const count = 70007
  for (const from of dtypes) {
    const src = dtypeArray(from, count)
    const bytes = new Uint8Array(src.buffer)
    for (let i = 0; i < bytes.length; i++) bytes[i] = next() >>> 24
    for (const to of dtypes) {
      for (const saturate of [true, false]) {
        const dst = dtypeArray(to, count)
        run('cast', { srcDtype: from, dstDtype: to, count, saturate, src, dst })
        add(dst)
      }
    }
  }
  const rows = 53, cols = 80
  const values = Float32Array.from({ length: rows * cols }, () => (next() / 2 ** 31 - 1) * 2 ** (next() % 24))
  const out = new Float32Array(1)
  run('amax', { dtype: 'f32', count: values.length, src: values, out })
  add(out)
  for (const srcDtype of ['f32', 'f16', 'bf16']) {
    const src = dtypeArray(srcDtype, values.length)
    run('cast', { srcDtype: 'f32', dstDtype: srcDtype, count: src.length, saturate: true, src: values, dst: src })
    run('amax', { dtype: srcDtype, count: src.length, src, out })
    add(out)
    if (!Number.isFinite(out[0])) for (let i = 0; i < src.length; i++) src[i] = i * 7 % 30000
    for (const recipe of ['modelopt', 'te', 'mse']) {
      const packed = new Uint8Array(src.length / 2), blockScale = new Uint8Array(src.length / 16)
      const tensorScale = 0.75, encodeScale = Math.fround(1 / 0.75), dst = new Float32Array(src.length)
      run('nvfp4Quantize', { srcDtype, rows, cols, recipe, tensorScale, encodeScale, src, packed, blockScale })
      run('nvfp4Dequantize', { rows, cols, tensorScale, packed, blockScale, dst })
      for (const array of [packed, blockScale, dst]) add(array)
    }
    const codes = new Uint8Array(src.length), scale = new Float32Array(4 * 5)
    run('fp8Quantize', { srcDtype, rows, cols, blockRows: 16, blockCols: 17, src, codes, scale })
    add(codes)
    add(scale)
  }
  return hash.digest('hex')
}
const native = digest((op, args) => addon.run(op, args))
console.log(JSON.stringify([native, process.env.JS ? digest((op, args) => precisionKernels[op](args)) : '']))
`

t.test('every instruction set', { skip: state.addon ? false : `no addon: ${state.reason}` }, async t => {
  const [plain, js] = (await scriptResult(script, { DGX_SPARK_CPU_ISA: 'plain', JS: '1' })) as string[]
  t.equal(plain, js, 'plain')
  for (const isa of ['avx2', 'avx512', 'neon', 'unknown']) {
    const [digest] = (await scriptResult(script, { DGX_SPARK_CPU_ISA: isa })) as string[]
    t.equal(digest, js, `${isa}, or the widest where this machine lacks it`)
  }
})

const objects = path.join(root, 'build/cmake/CMakeFiles/dgx_spark.dir/native')
const wide = existsSync(objects)
  ? readdirSync(objects, { recursive: true, encoding: 'utf8' }).filter(name =>
      /\/isa_(?!plain\.)\w+\.cc\.o$/.test(name),
    )
  : []
const noNm = spawnSync('nm', ['--version']).error !== undefined
const noObjects = wide.length === 0 ? 'no object files of a build' : noNm && 'no nm'

t.test('wide code is not shared', { skip: noObjects }, async t => {
  for (const name of wide) {
    const { stdout } = spawnSync('nm', ['-C', path.join(objects, name)], { encoding: 'utf8' })
    const weak = stdout.split('\n').filter(line => / [VWuvw] /.test(line))
    t.same(weak, [], `${name} has no symbol that the linker would share with narrower code`)
  }
})
