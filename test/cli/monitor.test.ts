// monitor: the live view on a pseudo terminal, lines in a pipe, one sample; on machines with and without GPUs.
import { spawn, spawnSync } from 'node:child_process'
import path from 'node:path'
import type { Writable } from 'node:stream'
import t from 'tap'
import { frame } from '#lib/cli/monitor-view/frame.js'
import { History } from '#lib/cli/monitor-view/history.js'
import { bar, sparkline } from '#lib/cli/monitor-view/sparkline.js'
import type { GpuSample } from '#lib/hardware/gpu-sample.js'
import type { MachineSample } from '#lib/hardware/machine-monitor.js'
import { loadAddon } from '#lib/native.js'
import { runScript } from '../fixtures/child.js'
import { FakeDriver, noCompiler } from '../fixtures/fake-driver/fake-driver.js'
import { FakeRoot, gb10Pci, profile } from '../fixtures/machine.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const noAddon = loadAddon().addon ? false : 'the addon is not built'
const noTerminal =
  spawnSync('script', ['-qec', 'stty rows 24', '/dev/null']).status === 0
    ? false
    : 'not installed: script (util-linux)'

const empty = new FakeRoot({
  files: {
    'proc/meminfo': 'MemTotal: 4194304 kB\nMemAvailable: 1048576 kB\n',
    'proc/stat': 'cpu0 1 0 0 1 0\n',
  },
})
t.teardown(() => empty.dispose())

const environment = (env: Record<string, string>) => ({
  PATH: process.env.PATH!,
  HOME: process.env.HOME ?? '',
  DGX_SPARK_SYSFS_ROOT: empty.path,
  ...env,
})

function monitor(args: string[], env: Record<string, string> = {}) {
  const options = { encoding: 'utf8', timeout: 120_000, env: environment(env) } as const
  const result = spawnSync(process.execPath, ['--no-warnings', main, 'monitor', ...args], options)
  const jsonLines = () =>
    result.stdout
      .trim()
      .split('\n')
      .map(line => JSON.parse(line))
  return { ...result, jsonLines }
}

/** Output with a visible sign for the start of an escape sequence. */
const readable = (output: string): string => output.replaceAll('\x1b', '␛')

const short = ['--interval', '0.02', '--duration', '0.3']

const gpu = (index: number, others: Partial<GpuSample> = {}): GpuSample => ({
  time: 0,
  gpu: { index, name: 'NVIDIA GB10', uuid: 'GPU-x' },
  utilization: 50 + index,
  memory: { used: 2 ** 30, total: 2 ** 37, isShared: true },
  temperature: 60,
  power: 41,
  powerLimit: null,
  clocks: { graphics: 2405, sm: 2405, memory: null, video: 2110, maxSm: 3003 },
  throttleReasons: ['software power cap'],
  processes: [{ pid: 4242 + index, name: 'python3', bytes: 2 ** 30, kind: 'compute' }],
  warnings: [],
  ...others,
})

const machine = (others: Partial<MachineSample> = {}): MachineSample => ({
  time: 0,
  cpu: { utilization: 12.5, cores: [0, 25], temperature: 47.3 },
  memory: { total: 2 ** 37, available: 2 ** 36, source: 'meminfo' },
  gpus: [],
  gpuProblems: [],
  ...others,
})

function drawn(samples: readonly MachineSample[], columns: number, rows: number, interval = 1): string[] {
  const history = new History(interval)
  for (const sample of samples) history.add(sample)
  return frame(history, { columns, rows }).map(line => line.map(String).join(''))
}

t.test('sparklines', async t => {
  t.equal([0, 20, 50, 100, 200, -5, null].map(value => bar(value, 100)).join(''), '▁▂▅██▁ ')
  const options = { columns: 5, perColumn: 1, first: 0, max: 10 }
  t.equal(sparkline([0, 5, 10], options), '  ▁▅█', 'the newest at the right end')
  t.equal(sparkline([1, 2, 3, 0, 5, null, 10, 10], options), '▁▅ ██', 'the last ones only')
  t.equal(sparkline([2, 4], { ...options, max: null }), '   ▅█', 'up to the highest')
  t.equal(sparkline([0, 0], { ...options, max: null }), '   ▁▁')
  t.equal(sparkline([], options), '     ')
  t.equal(sparkline([0, 10, 10, 10, 0], { ...options, perColumn: 2 }), '  ▅█▁', 'means')
  t.equal(
    sparkline([10, 10, 10, 0], { ...options, perColumn: 2, first: 1 }),
    '  ██▁',
    'of the same groups later',
  )
})

t.test('the view fits every terminal', async t => {
  const warning = 'the GPU is too hot, for 4 s now. Keep its vents free '.repeat(4)
  const machines = [
    machine(),
    machine({
      gpuProblems: ['there is no NVIDIA GPU'],
      cpu: { utilization: null, cores: [], temperature: null },
    }),
    machine({ gpus: [gpu(0, { warnings: [warning] })] }),
    machine({
      gpus: Array.from({ length: 8 }, (_, i) => gpu(i)),
      cpu: { utilization: 1, cores: new Array(224).fill(1), temperature: 1 },
    }),
  ]
  for (const columns of [1, 20, 39, 60, 79, 80, 120, 300]) {
    for (const rows of [1, 2, 5, 10, 24, 70]) {
      for (const [i, sample] of machines.entries()) {
        const lines = drawn(new Array(200).fill(sample), columns, rows)
        t.ok(lines.length <= rows, `${lines.length} lines of machine ${i} in ${rows}`)
        for (const line of lines) if (line.length > columns) t.fail(`${line} is longer than ${columns}`)
      }
    }
  }
})

t.test('what the view shows', async t => {
  const text = drawn([machine({ gpus: [gpu(0)] })], 100, 30).join('\n')
  t.match(text, /^CPU +2 cores$/m)
  t.match(text, /^ +busy +13 % +▂$/m)
  t.match(text, /^ +memory +64\.0 GiB of 128 GiB +▅$/m)
  t.match(text, /^ +temperature +47 °C/m)
  t.match(text, /^ +each core +▁▃$/m)
  t.match(text, /^GPU 0 +NVIDIA GB10$/m)
  t.match(text, /^ +memory +1\.0 GiB of the machine's/m)
  t.match(text, /^ +SM clock +2405 of 3003 MHz +▇$/m)
  t.match(text, /graphics 2405 MHz, memory not supported, video 2110 MHz$/m)
  t.match(text, /^ +throttled +software power cap$/m)
  t.match(text, /^ +4242 +0 +compute +1\.0 GiB +python3$/m)
  const discrete = { used: 2 ** 30, total: 2 ** 34, isShared: false }
  t.match(
    drawn([machine({ gpus: [gpu(0, { memory: discrete, powerLimit: 300 })] })], 100, 30).join('\n'),
    /1\.0 GiB of 16\.0 GiB.*41 of 300 W/s,
  )
  const eight = drawn([machine({ gpus: Array.from({ length: 8 }, (_, i) => gpu(i)) })], 100, 20).join('\n')
  for (let i = 0; i < 8; i++) t.match(eight, new RegExp(`^GPU ${i} .*${50 + i} %.*41 W`, 'm'))
  t.match(eight, /and 4 more/, 'of the processes')
  t.match(
    drawn([machine({ gpus: [gpu(0), gpu(1, { warnings: ['slow'] })] })], 80, 50).join('\n'),
    /^! GPU 1: slow$/m,
  )
  t.match(
    drawn([machine({ gpuProblems: ['there is no NVIDIA GPU'] })], 80, 24).join('\n'),
    /^there is no NVIDIA GPU$/m,
  )
})

t.test('narrow windows have drawings, too', async t => {
  const lines = drawn([machine({ gpus: [gpu(0)] })], 45, 30)
  t.match(lines[2], /^ {2}busy +13 % +▂$/)
  t.match(lines[3], /^ {2}memory +64\.0 GiB of 128 GiB +▅$/)
  t.equal(
    lines
      .find(line => line.includes("of the machine's"))!
      .trimEnd()
      .slice(-9),
    "machine's",
  )
})

t.test('a view that is suspended leaves the terminal alone', async t => {
  const script = `import { liveView } from '#lib/cli/progress.js'
    process.kill = (pid, signal) => process.stdout.write('<' + signal + '>')
    const view = liveView(() => process.stdout.write('<change>'))
    view.draw([['one']])
    process.emit('SIGTSTP')
    view.draw([['two']])
    process.emit('SIGCONT')
    view.draw([['three', 'x']])
    process.stdout.emit('resize')
    view.end()
    view.end()
    view.draw([['four']])`
  const { code, stdout } = await runScript(script)
  t.equal(code, 0)
  const [enter, leave] = ['␛[?1049h␛[?25l␛[?7l', '␛[?7h␛[?25h␛[?1049l']
  const shown = (text: string): string => `␛[?2026h␛[H${text}␛[K␛[J␛[?2026l`
  const suspended = `${leave}<SIGSTOP>${enter}<change>`
  t.equal(readable(stdout), `${enter}${shown('one')}${suspended}${shown('threex')}<change>${leave}`)
  const { stdout: left } = await runScript(
    `import { liveView } from '#lib/cli/progress.js'\nliveView(() => {})\nprocess.exit()`,
  )
  t.equal(readable(left), enter + leave, 'also where the process ends')
})

t.test('the last minutes', async t => {
  const samples = Array.from({ length: 3000 }, (_, i) =>
    machine({ cpu: { utilization: i < 2900 ? 0 : 100, cores: [], temperature: null } }),
  )
  const busy = (lines: string[]) => lines.find(line => line.includes('busy'))!.trim()
  t.match(busy(drawn(samples, 101, 24)), /▁{20,}.?█{33}$/, '100 of at least 180 s')
  t.match(busy(drawn(samples, 221, 24)), /▁{80}█{100}$/, 'one column for each second')
})

t.test('lines in a pipe, without a GPU', async t => {
  const { status, stdout, stderr } = monitor(short)
  t.equal(status, 0)
  t.match(stdout, /^\d\d:\d\d:\d\d {2}CPU .*3\.0 GiB of 4\.0 GiB/)
  t.match(stdout, /\d+ samples? in .*CPU utilization/s)
  t.notMatch(stdout, '\x1b')
  t.equal(stderr, 'dgx-spark: there is no NVIDIA GPU\n', 'once')
  const lines = monitor([...short, '--json']).jsonLines()
  t.match(lines[0], { gpu: null, machineMemory: { available: 2 ** 30 }, gpuProblems: [/no NVIDIA GPU/] })
  t.equal(lines.at(-1).summary.samples, lines.length - 1)
  t.match(monitor(['--gpu', '0']), { status: 1, stderr: /no NVIDIA GPU to measure.*ERR_NO_CUDA/ })
})

t.test('one sample', async t => {
  const { status, stdout } = monitor(['--status'])
  t.equal(status, 0)
  t.match(stdout, /^CPU, 1 core\n +busy .*\n +memory +3\.0 GiB of 4\.0 GiB\n.*there is no NVIDIA GPU\n$/s)
  t.match(JSON.parse(monitor(['--status', '--json']).stdout), { cpu: { cores: [0] }, gpus: [] })
})

t.test('on a terminal', { skip: noTerminal }, async t => {
  const onTerminal = (args: string, size = 'cols 70 rows 20', env: Record<string, string> = {}): string => {
    const command = `stty ${size}; "${process.execPath}" --no-warnings "${main}" monitor ${args}`
    const options = {
      encoding: 'utf8',
      timeout: 120_000,
      env: environment({ TERM: 'xterm', ...env }),
    } as const
    return readable(spawnSync('script', ['-qec', command, '/dev/null'], options).stdout)
  }

  /** Runs the monitor until its output satisfies a condition, and ends it then. */
  async function endOnTerminal(
    until: (output: string) => boolean,
    end: (keys: Writable, pid: number) => unknown,
  ): Promise<{ code: unknown; output: string }> {
    const command = `stty cols 70 rows 20; echo $$; exec "${process.execPath}" --no-warnings "${main}" monitor --interval 0.05`
    const child = spawn('script', ['-qec', command, '/dev/null'], { env: environment({ TERM: 'xterm' }) })
    let output = ''
    let isEnded = false
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += readable(text)
      if (isEnded || !until(output)) return
      isEnded = true
      end(child.stdin, Number.parseInt(output, 10))
    })
    const code = await new Promise(resolve => child.on('close', resolve))
    return { code, output }
  }

  t.test('draws in place and gives the terminal back', async t => {
    const frames = (text: string): string[] => text.split('␛[H').slice(1)
    const { output } = await endOnTerminal(
      output => frames(output).length > 4,
      keys => keys.write('\x03'),
    )
    const [, view = '', after = ''] = output.split(/␛\[\?1049[hl]/)
    t.match(view, /^␛\[\?25l␛\[\?7l␛\[\?2026h␛\[Hmeasuring/)
    t.match(view, /␛\[\?7h␛\[\?25h$/, 'line wrap and cursor are back')
    t.notMatch(view, '␛[2J', 'nothing is erased before it is drawn')
    t.match(frames(view)[3], /␛\[1mCPU.*busy.*there is no NVIDIA GPU/s)
    t.match(after, /samples in .*CPU utilization/s)
  })

  t.test('without colours', async t => {
    const output = onTerminal(short.join(' '), undefined, { NO_COLOR: '1' })
    t.match(output, 'CPU')
    t.notMatch(output, /␛\[[\d;]*m/)
  })

  t.test('lines where they are wanted, or nothing else is possible', async t => {
    for (const output of [
      onTerminal(`${short.join(' ')} --plain`),
      onTerminal(short.join(' '), undefined, { TERM: 'dumb' }),
    ]) {
      t.match(output, /^\d\d:\d\d:\d\d {2}CPU/)
      t.notMatch(output, '␛[?1049h')
    }
    t.match(onTerminal('--status'), /^CPU, 1 core/)
  })

  t.test('Ctrl-C and other signals give the terminal back', async t => {
    const ends = [
      [130, (keys: Writable) => keys.write('\x03')],
      [143, (_: Writable, pid: number) => process.kill(pid, 'SIGTERM')],
      [129, (_: Writable, pid: number) => process.kill(pid, 'SIGHUP')],
    ] as const
    for (const [expected, end] of ends) {
      const { code, output } = await endOnTerminal(output => output.includes('busy'), end)
      t.equal(code, expected)
      t.match(output, /␛\[\?7h␛\[\?25h␛\[\?1049l\s+\d+ samples? in .*CPU utilization/s)
    }
  })
})

t.test('fake drivers', { skip: noCompiler || noAddon }, async t => {
  const fakeDriver = new FakeDriver()
  const spark = new FakeRoot({
    pci: [gb10Pci],
    files: {
      'proc/meminfo': 'MemTotal: 127535932 kB\nMemAvailable: 101234567 kB\n',
      'proc/4242/comm': 'evil\x1b[31m\n',
    },
  })
  t.teardown(() => {
    fakeDriver.dispose()
    spark.dispose()
  })
  const on = (name: string, others: object = {}) => ({
    ...fakeDriver.env({ ...profile(name), ...others }),
    ...(name === 'gb10' && { DGX_SPARK_SYSFS_ROOT: spark.path }),
  })

  t.test('samples, then the summary', async t => {
    const { status, stdout } = monitor(short, on('gb10'))
    t.equal(status, 0)
    t.match(stdout, /96 %.*67 °C.*41 W.*2405 MHz/)
    t.match(stdout, /\d+ samples? in .*SM clock/s)
    const lines = monitor([...short, '--json'], on('gb10')).jsonLines()
    t.match(lines[0], { utilization: 96, gpu: { index: 0 }, cpu: { cores: [] }, machineMemory: {} })
    t.equal(lines.at(-1).summary.samples, lines.length - 1)
  })

  t.test('one sample of a GB10', async t => {
    const { stdout } = monitor(['--status'], on('gb10'))
    t.match(stdout, /GPU 0: NVIDIA GB10\n.*memory +8\.0 GiB of the machine's/s)
    t.match(stdout, /power +41 W\n.*memory not supported.*throttled +no\n/s)
    t.match(stdout, /4242 +GPU 0 +compute +8\.0 GiB +evil/)
    t.notMatch(stdout, '\x1b')
  })

  t.test('several GPUs, or one of them', async t => {
    const all = monitor(short, on('two-gpus')).stdout
    t.match(all, /^\d\S+ {2}GPU 0 .* 0 %.*\n\d\S+ {2}GPU 1 .* 1 %/)
    t.match(all, /GPU 0: Quadro RTX 5000\n.*GPU 1: NVIDIA RTX PRO 6000/s)
    t.match(monitor(['--gpu', '1', ...short], on('two-gpus')).stdout, /^\d\S+ +1 %/)
    const lines = monitor([...short, '--json'], on('two-gpus')).jsonLines()
    t.same(
      lines.slice(0, 2).map(({ gpu }) => gpu.index),
      [0, 1],
    )
    t.same(
      lines.slice(-2).map(({ gpu }) => gpu.index),
      [0, 1],
      'a summary of each',
    )
    t.match(monitor(['--gpu', '7'], on('two-gpus')), { status: 1, stderr: /gpu is 7.*ERR_ARGUMENT/ })
  })

  t.test('a GPU that is lost on the way', async t => {
    const { status, stdout, stderr } = monitor(
      ['--interval', '0.02', '--duration', '4'],
      on('rtx', { nvml: { loseAfter: 1 } }),
    )
    t.equal(status, 1)
    t.match(stdout, /samples? in/)
    t.match(stderr, /^dgx-spark: GPU 0 \(.*is lost[^\n]*\n$/, 'once')
  })

  t.test('the power supply fault', async t => {
    const machine = profile('gb10')
    Object.assign(machine.gpus[0]!, { utilization: '97|98|99', power: 15400, clocks: { sm: 611 } })
    const { stderr } = monitor(short, on('gb10', machine))
    t.equal(stderr.match(/failed to negotiate/g)?.length, 1, 'once, whatever its numbers')
  })
})
