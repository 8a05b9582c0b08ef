// The command line tool as a person calls it, on this machine and on machines played by fake drivers.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import type { Command } from 'commander'
import t from 'tap'
import { examples } from '#lib/cli/command.js'
import { createProgram } from '#lib/cli/program.js'
import { loadAddon } from '#lib/native.js'
import { FakeDriver, noCompiler, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { FakeRoot, gb10Pci, profile } from '../fixtures/machine.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')

function cli(args: string[], env: Record<string, string> = {}, timeout = 120_000) {
  const result = spawnSync(process.execPath, ['--no-warnings', main, ...args], {
    encoding: 'utf8',
    timeout,
    env: { PATH: process.env.PATH!, HOME: process.env.HOME ?? '', ...env },
  })
  return { ...result, json: () => JSON.parse(result.stdout) }
}

const noAddon = loadAddon().addon ? false : 'the addon is not built'

t.test('help, version, wrong usage', async t => {
  const help = cli(['--help'])
  t.equal(help.status, 0)
  for (const command of ['info', 'check', 'verify', 'monitor', 'demo']) t.match(help.stdout, command)
  t.match(help.stdout, 'Exit codes')
  t.match(cli(['--version']).stdout, /^\d+\.\d+\.\d+\n$/)
  for (const args of [
    ['nonsense'],
    ['info', '--nonsense'],
    ['demo', '--backend', 'tpu'],
    ['monitor', '--interval', 'x'],
  ]) {
    const { status, stderr, stdout } = cli(args)
    t.equal(status, 2, args.join(' '))
    t.match(stderr, /^error: .*\nexample: dgx-spark .*\nhelp: dgx-spark .*--help\n$/)
    t.equal(stdout, '')
  }
  t.match(cli(['inspct', 'x']).stderr, /unknown command 'inspct' \(did you mean inspect\?\)/)
  t.match(cli(['run', 'x', '--prcision', 'bf16']).stderr, /'--prcision' \(did you mean --precision\?\)/)
  t.match(cli(['demo', '--backend', 'cdua']).stderr, /\(did you mean 'cuda'\?\)/)
  t.match(cli(['help', 'adapter', 'diff']).stdout, /Usage: dgx-spark adapter diff \[options\] <a> <b>/)
  t.match(cli(['help', 'nothing']), { status: 2, stderr: /unknown command 'nothing'/ })
  t.match(cli(['merge', '--help']).stdout, /ONNX file to write \(required\).*Examples:\n +dgx-spark merge /s)
  for (const args of [['version'], ['-v']]) t.match(cli(args).stdout, /^\d+\.\d+\.\d+\n$/)
})

/** The words of a command line, in which a text may stand in quotes. */
const wordsOf = (line: string): string[] =>
  (line.match(/'[^']*'|\S+/g) ?? []).map(word => word.replace(/^'(.*)'$/, '$1'))

t.test('no help shows an empty list as a default', async t => {
  const visit = (command: Command): void => {
    t.notMatch(command.helpInformation(), 'default: []', command.name())
    command.commands.forEach(visit)
  }
  visit(await createProgram())
})

t.test('every command has examples that it takes', async t => {
  const visit = async (command: Command): Promise<void> => {
    for (const inner of command.commands) await visit(inner)
    const isHidden = command.name() === 'version'
    t.ok(examples(command).length > 0 || isHidden, `${command.name()} has examples`)
  }
  await visit(await createProgram())
  const lines: string[] = []
  const collect = (command: Command): void => {
    lines.push(...examples(command))
    command.commands.forEach(collect)
  }
  collect(await createProgram())
  for (const line of lines) {
    const program = await createProgram()
    const silence = (command: Command): void => {
      command.action(() => undefined).configureOutput({ writeErr: () => undefined })
      command.commands.forEach(silence)
    }
    program.commands.forEach(silence)
    await t.resolves(program.parseAsync(wordsOf(line).slice(1), { from: 'user' }), line)
  }
})

t.test('info', async t => {
  const { status, stdout } = cli(['info'])
  t.equal(status, 0)
  t.match(
    stdout,
    /Machine.*CPU +\S.*, \d+ cores?\n.*GPUs.*Configuration.*DGX_SPARK_THREADS.*DGX_SPARK_PREBUILD/s,
  )
  const root = new FakeRoot({
    files: { 'proc/self/cgroup': '0::/\n', 'sys/fs/cgroup/cpu.max': '150000 100000\n' },
  })
  t.teardown(() => root.dispose())
  const limited = cli(['info'], { DGX_SPARK_SYSFS_ROOT: root.path }).stdout
  t.match(limited, /CPU +\S.*, \d+ cores?, of which a quota allows 1\.5: 1 thread\n/)
  const info = cli(['info', '--json'], { DGX_SPARK_PRECISION: 'bf16', OPENPILOT_DGX_ENABLED: '0' }).json()
  t.type(info.hardware.isDgxSpark, 'boolean')
  t.match(info.configuration, [
    { name: 'enabled', value: false, source: 'OPENPILOT_DGX_ENABLED' },
    { name: 'precision', value: 'bf16', source: 'DGX_SPARK_PRECISION' },
  ])
})

t.test('check on this machine', async t => {
  const items = cli(['check', '--json']).json()
  const names = items.map((item: { name: string }) => item.name)
  for (const name of [
    'native addon',
    'NVIDIA GPU',
    'CUDA driver',
    'NVML',
    'CUDA kernels',
    'cuBLASLt',
    'memory',
    'permissions',
    'engine',
    'precision',
  ]) {
    t.ok(names.includes(name), name)
  }
  for (const { status, next, name } of items)
    if (status === 'problem') t.type(next, 'string', `${name} says what to do`)
})

t.test('check finds an invalid configuration and fails', async t => {
  const { status, stdout } = cli(['check'], { DGX_SPARK_THREADS: 'many' })
  t.equal(status, 1)
  t.match(stdout, /PROBLEM +configuration +DGX_SPARK_THREADS=many is invalid/)
})

t.test('verify: the CPU agrees with TypeScript', { skip: noAddon }, async t => {
  const { status, stdout } = cli(['verify'])
  t.equal(status, 0, stdout)
  t.match(stdout, /cpu: \d+ passed, 0 failed, 0 unsupported \(reference: js\)/)
  const results = cli(['verify', '--json']).json()
  t.ok(results.length > 50)
  t.ok(results.every((result: { status: string }) => result.status === 'passed'))
})

t.test('verify without the addon says what to do', async t => {
  const { status, stderr } = cli(['verify'], { DGX_SPARK_BUILD: 'none' })
  t.equal(status, 1)
  t.match(stderr, /ERR_NO_NATIVE/)
})

t.test('verify notices a GPU that computes nothing', { skip: noCudaCalls }, async t => {
  const fakeDriver = new FakeDriver()
  t.teardown(() => fakeDriver.dispose())
  const { status, stdout } = cli(['verify'], fakeDriver.env(profile('h200')))
  t.equal(status, 1)
  t.match(stdout, /gpu 0: \d+ passed, [1-9]\d* failed/)
})

t.test('machines played by fake drivers', { skip: noCompiler || noAddon }, async t => {
  const fakeDriver = new FakeDriver()
  const spark = new FakeRoot({
    dmi: { vendor: 'NVIDIA', product: 'NVIDIA_DGX_Spark', family: 'DGX Spark' },
    pci: [gb10Pci],
    files: { 'proc/meminfo': 'MemTotal: 127535932 kB\nMemAvailable: 101234567 kB\nHugePages_Total: 0\n' },
  })
  t.teardown(() => {
    fakeDriver.dispose()
    spark.dispose()
  })
  const on = (name: string) => ({ ...fakeDriver.env(profile(name)), DGX_SPARK_SYSFS_ROOT: spark.path })

  t.test('a DGX Spark', async t => {
    const { stdout } = cli(['info'], on('gb10'))
    t.match(stdout, /DGX Spark +yes/)
    t.match(stdout, /NVIDIA GB10 \(best\)/)
    t.match(stdout, /shared with the CPU/)
    t.notMatch(stdout, /SECRET-SERIAL/)
    const items = cli(['check', '--json'], on('gb10')).json()
    const item = (name: string) => items.find((each: { name: string }) => each.name === name)
    t.match(item('machine').found, /a DGX Spark$/)
    t.match(item('CUDA driver'), { status: 'ok', found: 'CUDA 13.0' })
    t.match(item('CUDA graphs'), { status: 'ok', found: /^on: .*DGX_SPARK_CUDA_GRAPHS=1/ })
    t.match(item('memory').found, 'shared by CPU and GPU')
    t.match(item('FP4 tensor cores'), {
      status: 'note',
      found:
        /our kernel differs from the CPU.* on its tensor cores for bf16.*\(tested now, kept in .*fp4.json\)/,
      next: /^rm .*fp4.json/,
    })
    t.match(item('engine'), {
      status: 'ok',
      found: /^cuda, ready in \d+ ms \(\d+ to detect, \d+ to open\)/,
    })
    t.match(item('memory kinds'), {
      status: 'ok',
      found:
        /^weights and arena: \w+ \(GB\/s: device [\d.]+, pinned [\d.]+, managed [\d.]+\); inputs and outputs: .*managed [\d.]+\)$/,
    })
    const slow = fakeDriver.env({ ...profile('gb10'), cuda: { initSeconds: 4 } })
    const late = cli(['check', '--json'], { ...slow, DGX_SPARK_SYSFS_ROOT: spark.path }).json()
    t.match(
      late.find((each: { name: string }) => each.name === 'engine'),
      { status: 'problem', found: /at most 3000 ms$/, next: /persistenced/ },
    )
  })

  t.test('a driver that hangs in CUDA graphs', async t => {
    const env = {
      ...fakeDriver.env({ ...profile('gb10'), driver: '590.44.01' }),
      DGX_SPARK_SYSFS_ROOT: spark.path,
    }
    t.match(
      cli(['check'], env).stdout,
      /note +CUDA graphs .*hang.*590\.44\.01\n +> set DGX_SPARK_CUDA_GRAPHS=0/,
    )
    const off = cli(['check'], { ...env, DGX_SPARK_CUDA_GRAPHS: '0' }).stdout
    t.match(off, /ok +CUDA graphs +off by DGX_SPARK_CUDA_GRAPHS=0/)
  })

  t.test('a driver without a device', async t => {
    const { status, stdout } = cli(['check'], on('no-device'))
    t.equal(status, 1)
    t.match(stdout, /PROBLEM +CUDA driver[^\n]+\n +> sudo apt-get update && sudo apt-get dist-upgrade/)
  })
})
