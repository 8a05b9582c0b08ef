// The dot-product kernels of arm64 under qemu: bytes equal plain sums, bfmmla equals bfdot, bit for bit.
import path from 'node:path'
import t from 'tap'
import { has, run } from '../fixtures/checkout.js'

const compiler = 'aarch64-linux-gnu-g++'
const emulator = 'qemu-aarch64-static'
const missing = [compiler, emulator].filter(command => !has(command))
const skip = missing.length > 0 && `not installed: ${missing.join(', ')}`

const simd = 'native/backend/cpu/simd'
const sources = {
  [`${simd}/isa_plain.cc`]: ['-O0'],
  [`${simd}/isa_neon.cc`]: ['-O0', '-march=armv8-a'],
  [`${simd}/isa_neonbf16.cc`]: ['-O2', '-march=armv8.2-a+bf16'],
  [`${simd}/isa_neoni8mm.cc`]: ['-O2', '-march=armv8.2-a+bf16+i8mm'],
  'native/backend/cpu/gemm/dot_self_test.cc': ['-O1'],
  'test/fixtures/native/dot_kernels.cc': ['-O1'],
}

t.test('dot-product kernels', { skip }, async t => {
  const root = path.resolve(import.meta.dirname, '../..')
  const folder = t.testdir()
  const flags = ['-std=c++20', '-ffp-contract=off', '-Wno-psabi', '-I', 'native', '-c']
  const objects = Object.entries(sources).map(([source, options]) => {
    const object = path.join(folder, `${path.basename(source, '.cc')}.o`)
    run(root, compiler, [...flags, ...options, source, '-o', object])
    return object
  })
  const program = path.join(folder, 'dot_kernels')
  run(root, compiler, ['-static', ...objects, '-o', program])
  t.match(run(root, emulator, ['-cpu', 'max', program]), /^\d{6} sums agree\n$/)
})
