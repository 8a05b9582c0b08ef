// GpuMonitor over a fake NVML. Every child ends by itself: one that hangs fails by the test's time limit.

import { GpuMonitor } from 'dgx-spark'
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { FakeDriver, noCompiler } from '../fixtures/fake-driver/fake-driver.js'
import { type Answer, FakeRoot, gb10Pci, type Profile, profile, runChild } from '../fixtures/machine.js'

const loaded = loadAddon()
const hour = 3_600_000

t.test('fake drivers', { skip: noCompiler || (loaded.addon ? false : loaded.reason) }, async t => {
  const fakeDriver = new FakeDriver()
  const root = new FakeRoot({
    pci: [gb10Pci],
    files: {
      'proc/meminfo': 'MemTotal: 127535932 kB\nMemAvailable: 101234567 kB\n',
      'proc/4242/comm': 'python3\n',
    },
  })
  t.teardown(() => {
    fakeDriver.dispose()
    root.dispose()
  })
  const monitored = (machine: Profile, code: string, drivers = fakeDriver): Answer =>
    runChild(
      `import { GpuMonitor } from 'dgx-spark'
       const failure = error => ({ code: error.code, message: error.message })\n${code}`,
      { ...drivers.env(machine), DGX_SPARK_SYSFS_ROOT: root.path },
    )

  t.test('one sample of a GB10: what it does not support is null', async t => {
    const sample = monitored(profile('gb10'), 'const answer = await new GpuMonitor().sample()')
    t.ok(sample.time > 1.7e12)
    delete sample.time
    t.same(sample, {
      gpu: { index: 0, name: 'NVIDIA GB10', uuid: 'GPU-6f1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8' },
      utilization: 96,
      memory: { used: 8589934592 + 45088768, total: 128523960320, isShared: true },
      temperature: 67,
      power: 41.3,
      powerLimit: null,
      clocks: { graphics: 2405, sm: 2405, memory: null, video: 2110, maxSm: 3003 },
      throttleReasons: [],
      processes: [
        { pid: 4242, name: 'python3', bytes: 8589934592, kind: 'compute' },
        { pid: 3001, name: null, bytes: 45088768, kind: 'graphics' },
      ],
      warnings: [],
    })
  })

  t.test('a process that computes and draws is listed once', async t => {
    const machine = profile('gb10')
    machine.gpus[0]!.processes = [
      { pid: 9, bytes: 700 },
      { pid: 9, bytes: 500, graphics: true },
      { pid: 8, graphics: true },
    ]
    const { processes, memory } = monitored(machine, 'const answer = await new GpuMonitor().sample()')
    t.same(processes, [
      { pid: 9, name: null, bytes: 700, kind: 'compute' },
      { pid: 8, name: null, bytes: null, kind: 'graphics' },
    ])
    t.equal(memory.used, 700)
  })

  t.test('iterating an H200: samples, throttling, summary', async t => {
    const code = `const monitor = new GpuMonitor({ intervalMs: 10 })
      const samples = []
      for await (const sample of monitor) if (samples.push(sample) === 3) break
      const answer = { samples, summary: monitor.summary() }`
    const { samples, summary } = monitored(profile('h200'), code)
    t.match(samples, [
      {
        utilization: 10,
        temperature: 31,
        power: 76,
        powerLimit: 700,
        memory: { used: 639369216, total: 150754820096, isShared: false },
      },
      { utilization: 95, clocks: { sm: 1980, memory: 3201 }, throttleReasons: ['software power cap'] },
      { utilization: 40, power: 300.25 },
    ])
    t.same(samples[0].throttleReasons, ['idle'])
    t.same(samples[2].throttleReasons, ['software power cap'], 'its counter grew; the moment says nothing')
    t.same(samples[2].processes, [
      { pid: 77, name: null, bytes: 639369216, kind: 'compute' },
      { pid: 78, name: null, bytes: null, kind: 'compute' },
    ])
    t.equal(summary.samples, 3)
    t.same(summary.utilization, { mean: 145 / 3, min: 10, peak: 95 })
    t.same(summary.temperature, { mean: 46, min: 31, peak: 58 })
    t.match(summary.power, { min: 76, peak: 640.5 })
    t.match(summary.smClock, { min: 345, peak: 1980 })
    t.same(summary.throttleReasons, { idle: 1, 'software power cap': 2 })
    t.same(summary.warnings, [])
  })

  t.test('a driver before CUDA 13 is not asked for counters it numbers differently', async t => {
    const code = `const monitor = new GpuMonitor({ intervalMs: 10 })
      await monitor.sample()
      const answer = (await monitor.sample()).throttleReasons`
    t.notOk(monitored(profile('h200'), code).includes('hardware thermal slowdown'))
    t.ok(monitored({ ...profile('h200'), cudaVersion: 13000 }, code).includes('hardware thermal slowdown'))
  })

  t.test('the power supply fault of a GB10', async t => {
    const code =
      'const monitor = new GpuMonitor(); const { warnings } = await monitor.sample(); const answer = [warnings, monitor.summary().warnings]'
    const faulty = (name: string): Profile => {
      const machine = profile(name)
      Object.assign(machine.gpus[0]!, { utilization: 97, power: 15400, clocks: { sm: 611 } })
      return machine
    }
    const [warnings, summary] = monitored(faulty('gb10'), code)
    t.match(warnings, [/611 MHz and draws 15 W.*60 s/])
    t.same(summary, warnings)
    t.same(monitored(faulty('h200'), code), [[], []], 'only machines with that power supply')
  })

  t.test('a GPU by index and by uuid', async t => {
    const code = (gpu: string): string =>
      `const answer = await new GpuMonitor({ gpu: ${gpu} }).sample().then(sample => sample.gpu.name, failure)`
    const machine = profile('two-gpus')
    t.match(monitored(machine, code('undefined')), /RTX PRO 6000/, 'the best GPU')
    t.equal(monitored(machine, code('0')), 'Quadro RTX 5000')
    t.match(monitored(machine, code("'GPU-bbbbbbbb-0000-0000-0000-00000000000b'")), /RTX PRO 6000/)
    t.match(monitored(machine, code('3')), { code: 'ERR_ARGUMENT', message: /gpu is 3.*0 \(Quadro/ })
  })

  t.test('a GPU that is lost', async t => {
    const sampling = 'const answer = await new GpuMonitor({ gpu: 1 }).sample().catch(failure)'
    t.match(monitored(profile('lost'), sampling), { code: 'ERR_NO_CUDA', message: /is lost/ })
    const later = `const monitor = new GpuMonitor({ gpu: 0 })
      await monitor.sample()
      const answer = await monitor.sample().catch(failure)`
    t.match(monitored({ ...profile('rtx'), nvml: { loseAfter: 1 } }, later), {
      code: 'ERR_CUDA',
      message: /is lost/,
    })
  })

  t.test('an NVML that lacks calls', async t => {
    const symbols = [
      'nvmlDeviceGetUtilizationRates',
      'nvmlDeviceGetCurrentClocksEventReasons',
      'nvmlDeviceGetMemoryInfo_v2',
    ]
    const old = new FakeDriver(
      ['cuda', 'nvml'],
      symbols.map(symbol => `NO_${symbol}`),
    )
    t.teardown(() => old.dispose())
    const sample = monitored(profile('rtx'), 'const answer = await new GpuMonitor().sample()', old)
    t.match(sample, {
      utilization: null,
      throttleReasons: ['idle'],
      memory: { used: 12878610432 - 11811160064 },
    })
  })

  t.test('break, return and abort end the iteration without waiting for the interval', async t => {
    const head = `const stop = new AbortController()
      const monitor = new GpuMonitor({ intervalMs: ${hour}, signal: stop.signal })\n`
    t.equal(
      monitored(profile('rtx'), `${head}let answer = 0; for await (const _ of monitor) { answer++; break }`),
      1,
    )
    const returned = `${head}const samples = monitor[Symbol.asyncIterator]()
      await samples.next()
      const pending = samples.next()
      await samples.return()
      const answer = [await pending, await samples.next()]`
    t.match(monitored(profile('rtx'), returned), [{ done: true }, { done: true }])
    const aborted = `${head}setTimeout(() => stop.abort(), 50)
      let answer = 0
      for await (const _ of monitor) answer++
      for await (const _ of monitor) answer++`
    t.equal(monitored(profile('rtx'), aborted), 1)
  })

  t.test('an awaited iteration keeps the process alive, a background monitor does not', async t => {
    const awaited = `let answer = 0
      for await (const _ of new GpuMonitor({ intervalMs: 30 })) if (++answer === 3) break`
    t.equal(monitored(profile('rtx'), awaited), 3)
    const background = `const monitor = new GpuMonitor({ intervalMs: ${hour} })
      monitor.start()
      monitor.start()
      const answer = 'ended'`
    t.equal(monitored(profile('rtx'), background), 'ended')
    t.equal(monitored(profile('rtx'), `new GpuMonitor(); const answer = 'ended'`), 'ended')
  })

  t.test('start and stop: a summary of what ran between them', async t => {
    const code = `import { setTimeout as sleep } from 'node:timers/promises'
      const monitor = new GpuMonitor({ intervalMs: 10 })
      monitor.start()
      while (monitor.summary().samples < 3) await sleep(5)
      const first = await monitor.stop()
      await sleep(50)
      const answer = { first, later: await monitor.stop() }`
    const { first, later } = monitored(profile('rtx'), code)
    t.ok(first.samples >= 3)
    t.ok(later.samples <= first.samples + 1, 'it has stopped')
    t.match(later.utilization, { mean: 3, peak: 3 })
    const failing = `const monitor = new GpuMonitor({ gpu: 9 })
      monitor.start()
      await new Promise(resolve => setTimeout(resolve, 100))
      const answer = await monitor.stop().catch(failure)`
    t.match(monitored(profile('rtx'), failing), { code: 'ERR_ARGUMENT' }, 'stop tells what ended it')
  })

  t.test('a worker that is terminated while it samples', async t => {
    const code = `import { Worker } from 'node:worker_threads'
      const body = \`import('dgx-spark').then(async ({ GpuMonitor }) => {
        for await (const _ of new GpuMonitor({ intervalMs: 10 })) (await import('node:worker_threads')).parentPort.postMessage(1)
      })\`
      const answer = []
      for (let i = 0; i < 3; i++) {
        const worker = new Worker(body, { eval: true })
        await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
        answer.push(await worker.terminate())
      }`
    t.same(monitored(profile('rtx'), code), [1, 1, 1])
  })

  t.test('no GPU', async t => {
    const empty = new FakeRoot({})
    t.teardown(() => empty.dispose())
    const code = `import { GpuMonitor } from 'dgx-spark'
      const answer = await new GpuMonitor().sample().catch(error => [error.code, error.message])`
    const env = { ...fakeDriver.env(profile('no-device')), DGX_SPARK_SYSFS_ROOT: empty.path }
    t.match(runChild(code, env), ['ERR_NO_CUDA', /no NVIDIA GPU/])
    t.match(runChild(code, { ...env, DGX_SPARK_BUILD: 'none' }), ['ERR_NO_CUDA', /without the native addon/])
    t.match(
      runChild(code, {
        ...fakeDriver.env({ ...profile('rtx'), nvml: { init: 9 } }),
        DGX_SPARK_SYSFS_ROOT: empty.path,
      }),
      ['ERR_NO_CUDA', /Driver Not Loaded/],
    )
  })
})

t.test('options are checked when the monitor is made', async t => {
  const refuse = (options: object, message: RegExp): void => {
    t.throws(() => new GpuMonitor(options), { code: 'ERR_ARGUMENT', message })
  }
  refuse({ gpu: -1 }, /gpu .*-1/)
  refuse({ gpu: 1.5 }, /gpu .*1\.5/)
  refuse({ gpu: null }, /gpu .*null/)
  refuse({ intervalMs: 9 }, /intervalMs .*9/)
  refuse({ intervalMs: Number.NaN }, /intervalMs .*NaN/)
  refuse({ signal: {} }, /signal .*AbortSignal/)
  refuse({ interval: 5 }, /'interval'.*intervalMs/)
  t.equal(new GpuMonitor({ gpu: 'GPU-x', intervalMs: 250 }).summary().samples, 0)
  t.equal(new GpuMonitor().summary().utilization, null)
})
