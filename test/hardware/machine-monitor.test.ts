// MachineMonitor on machines with one GPU, several, broken ones, and none.
import { MachineMonitor } from 'dgx-spark'
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { FakeDriver, noCompiler } from '../fixtures/fake-driver/fake-driver.js'
import { type Answer, FakeRoot, gb10Pci, profile, runChild } from '../fixtures/machine.js'

const files = {
  'proc/meminfo': 'MemTotal: 1000 kB\nMemAvailable: 250 kB\n',
  'proc/stat': 'cpu0 1 0 0 1 0 0 0 0\n',
  'sys/class/thermal/thermal_zone0/type': 'acpitz\n',
  'sys/class/thermal/thermal_zone0/temp': '47300\n',
}
const root = new FakeRoot({ files })
t.teardown(() => root.dispose())

const measured = (code: string, env: Record<string, string>): Answer =>
  runChild(
    `import { MachineMonitor } from 'dgx-spark'
     const failure = error => ({ code: error.code, message: error.message })\n${code}`,
    env,
  )
const once = 'const answer = await new MachineMonitor().sample()'

t.test('no GPU: the CPU and the memory', async t => {
  const env = { DGX_SPARK_SYSFS_ROOT: root.path }
  for (const build of ['', 'none']) {
    const sample = measured(once, { ...env, ...(build && { DGX_SPARK_BUILD: build }) })
    t.ok(sample.time > 1.7e12)
    delete sample.time
    t.same(sample, {
      cpu: { utilization: null, cores: [0], temperature: 47.3 },
      memory: { total: 1024000, available: 256000, source: 'meminfo' },
      gpus: [],
      gpuProblems: ['there is no NVIDIA GPU'],
    })
  }
  const code = `import { writeFileSync } from 'node:fs'
    const monitor = new MachineMonitor({ intervalMs: 10 })
    const answer = [monitor.summary()]
    const first = await monitor.sample()
    writeFileSync(process.env.DGX_SPARK_SYSFS_ROOT + '/proc/stat', 'cpu0 31 0 0 11 0 0 0 0')
    const second = await monitor.sample()
    writeFileSync(process.env.DGX_SPARK_SYSFS_ROOT + '/proc/stat', 'cpu0 1 0 0 1 0 0 0 0')
    answer.push(second.cpu.utilization, monitor.summary())`
  const [none, utilization, summary] = measured(code, env)
  t.match(none, { samples: 0, cpuUtilization: null, gpus: [] })
  t.equal(utilization, 75)
  t.match(summary, {
    samples: 2,
    cpuUtilization: { mean: 75, min: 75, peak: 75 },
    cpuTemperature: { mean: 47.3 },
    memoryUsed: { peak: 768000 },
    gpus: [],
  })
  t.match(measured('const answer = await new MachineMonitor({ gpu: 0 }).sample().catch(failure)', env), {
    code: 'ERR_NO_CUDA',
  })
})

const loaded = loadAddon()
t.test('fake drivers', { skip: noCompiler || (loaded.addon ? false : loaded.reason) }, async t => {
  const fakeDriver = new FakeDriver()
  const spark = new FakeRoot({ files, pci: [gb10Pci] })
  t.teardown(() => {
    fakeDriver.dispose()
    spark.dispose()
  })
  const on = (name: string, others: object = {}): Record<string, string> => ({
    ...fakeDriver.env({ ...profile(name), ...others }),
    DGX_SPARK_SYSFS_ROOT: name === 'gb10' ? spark.path : root.path,
  })

  t.test('a GB10', async t => {
    const { gpus, memory, gpuProblems } = measured(once, on('gb10'))
    t.match(gpus, [{ gpu: { name: 'NVIDIA GB10' }, memory: { isShared: true }, clocks: { memory: null } }])
    t.equal(memory.total, 1024000)
    t.same(gpuProblems, [])
  })

  t.test('several GPUs: all of them, or one', async t => {
    const { gpus } = measured(once, on('two-gpus'))
    t.match(gpus, [{ gpu: { index: 0, name: 'Quadro RTX 5000' } }, { gpu: { index: 1 }, utilization: 1 }])
    const one = (gpu: string) =>
      measured(
        `const monitor = new MachineMonitor({ gpu: ${gpu} })
         const answer = await monitor.sample().then(({ gpus }) => ({ gpus, summary: monitor.summary() }), failure)`,
        on('two-gpus'),
      )
    const { gpus: chosen, summary } = one('1')
    t.equal(chosen.length, 1)
    t.match(summary.gpus, [{ gpu: { index: 1 }, summary: { samples: 1, utilization: { mean: 1 } } }])
    t.match(one('7'), { code: 'ERR_ARGUMENT', message: /gpu is 7.*there are 0 \(Quadro/ })
  })

  t.test('a GPU that is lost takes no other with it', async t => {
    const { gpus, gpuProblems } = measured(once, on('lost'))
    t.equal(gpus.length, profile('lost').gpus.length - gpuProblems.length)
    t.match(gpuProblems, [/GPU 1 .* is lost/])
  })

  t.test('a GPU that is lost on the way', async t => {
    const code = `const monitor = new MachineMonitor()
      const answer = [await monitor.sample(), await monitor.sample(), monitor.summary()]`
    const [first, second, summary] = measured(code, on('rtx', { nvml: { loseAfter: 1 } }))
    t.equal(first.gpus.length, 1)
    t.same(second.gpus, [])
    t.match(second.gpuProblems, [/^GPU 0 \(.*\): .*is lost/])
    t.match(summary, { samples: 2, gpus: [{ summary: { samples: 1 } }] })
  })

  t.test('a cause that lasts is a warning', async t => {
    const code = `const monitor = new MachineMonitor({ intervalMs: 900 })
      const answer = []
      for await (const { gpus } of monitor) if (answer.push(gpus[0].warnings) === 5) break
      answer.push(monitor.summary().gpus[0].summary.warnings)`
    const machine = profile('rtx')
    Object.assign(machine.gpus[0]!, { eventReasons: 0x80 })
    const warnings = measured(code, on('rtx', machine))
    t.same(warnings.slice(0, 4), [[], [], [], []])
    t.match(warnings[4], [/power brake/])
    t.match(warnings[5], [/power brake/])
  })
})

t.test('options are checked when the monitor is made', async t => {
  for (const options of [{ gpu: -1 }, { intervalMs: 9 }, { signal: {} }, { interval: 5 }])
    t.throws(() => new MachineMonitor(options as object), { code: 'ERR_ARGUMENT' })
  t.equal(new MachineMonitor({ gpu: 'GPU-x', intervalMs: 250 }).summary().samples, 0)
})
