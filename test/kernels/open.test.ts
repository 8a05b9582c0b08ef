// Which engine is opened. Each case is a process of its own, since the configuration is read once.
import { execFileSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { FakeRoot } from '../fixtures/machine.js'

const noAddon = loadAddon().addon ? false : 'the addon does not load'
const library = pathToFileURL(path.resolve('dist/kernels/index.js')).href

/** The engine that opens, or the error and its message; and the codes of the warnings. */
function open(
  options: object,
  env: Record<string, string> = {},
): { engine: string; message: string; warnings: string } {
  const script = `
    import { openKernels } from '${library}'
    const warnings = []
    process.on('warning', ({ code }) => warnings.push(code))
    let engine, message = ''
    for (let i = 0; i < 2; i++) {
      await openKernels(${JSON.stringify(options)}).then(
        kernels => { engine = kernels.backend },
        error => { engine = error.code; message = error.message },
      )
    }
    await new Promise(resolve => setImmediate(resolve))
    console.log(JSON.stringify({ engine, message, warnings: warnings.join() }))`
  const clean = Object.entries(process.env).filter(([name]) => !/DGX|^CUDA/.test(name))
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { ...Object.fromEntries(clean), DGX_SPARK_ENABLED: '0', ...env },
  })
  return JSON.parse(output)
}

t.test('with the addon', { skip: noAddon }, async t => {
  t.match(open({}), { engine: 'cpu', warnings: '' })
  t.match(open({ backend: 'cpu' }), { engine: 'cpu' })
  t.match(open({}, { DGX_SPARK_BACKEND: 'js' }), { engine: 'js', warnings: '' })
  t.match(
    open({ backend: 'cpu' }, { DGX_SPARK_BACKEND: 'js' }),
    { engine: 'cpu' },
    'an option beats the variable',
  )
  t.match(open({ backend: 'cuda' }), { engine: 'ERR_DISABLED', message: /DGX_SPARK_ENABLED/ })
})

t.test('without the addon', async t => {
  const none = { DGX_SPARK_BUILD: 'none' }
  t.match(open({}, none), { engine: 'js', warnings: 'SPARK_NO_NATIVE' }, 'warns once')
  t.match(open({ backend: 'js' }, none), { engine: 'js', warnings: '' })
  t.match(open({ backend: 'cpu' }, none), { engine: 'ERR_NO_NATIVE', message: /DGX_SPARK_BUILD=none/ })
})

t.test('options', async t => {
  t.match(open({ backend: 'gpu' }), { engine: 'ERR_ARGUMENT', message: /auto, cuda, cpu, js/ })
  t.match(open({ device: -1 }), { engine: 'ERR_ARGUMENT', message: /options.device/ })
})

t.test('a CPU quota bounds the threads', { skip: noAddon || process.platform !== 'linux' }, async t => {
  const script = `
    import { readdirSync } from 'node:fs'
    import { openKernels } from '${library}'
    const kernels = await openKernels({ backend: 'cpu' })
    const threads = () => readdirSync('/proc/self/task').length
    const before = threads()
    const [tokens, rows, cols] = [256, 512, 512]
    const weight = { format: 'f32', rows, cols, data: new Float32Array(rows * cols) }
    const [x, y] = [new Float32Array(tokens * cols), new Float32Array(tokens * rows)]
    kernels.runSync('linear', { tokens, x, weight, y })
    console.log(threads() - before)`
  const started = (cpuMax: string) => {
    const root = new FakeRoot({
      files: { 'proc/self/cgroup': '0::/\n', 'sys/fs/cgroup/cpu.max': `${cpuMax}\n` },
    })
    const env = { ...process.env, DGX_SPARK_THREADS: '0', DGX_SPARK_SYSFS_ROOT: root.path }
    try {
      return Number(execFileSync(process.execPath, ['--input-type=module', '-e', script], { env }))
    } finally {
      root.dispose()
    }
  }
  t.equal(started('max 100000'), availableParallelism() - 1)
  t.equal(started('199999 100000'), 0)
})
