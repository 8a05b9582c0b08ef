// npm run gpu:pack: the archive holds all that a bare machine needs, and its one command runs.
import { spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { has, run } from '../fixtures/checkout.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'

const root = path.resolve(import.meta.dirname, '../..')
const addon = path.join(root, 'build/Release/dgx_spark.node')
const missing = ['git', 'tar', 'xz'].filter(command => !has(command))
const work = mkdtempSync(path.join(tmpdir(), 'dgx-spark-gpu-pack-'))
t.teardown(() => rmSync(work, { recursive: true, force: true }))

/** Why the archive cannot be made here, or false. */
function whyNot(): string | false {
  if (missing.length > 0) return `not installed: ${missing.join(', ')}`
  if (!['x64', 'arm64'].includes(process.arch)) return `there is no Node.js package for ${process.arch}`
  if (!existsSync(addon)) return 'the addon is not in build/Release'
  const name = `node-linux-${process.arch}@${process.versions.node.split('.')[0]}`
  const { status } = spawnSync('npm', ['pack', '--dry-run', '--silent', name], { cwd: work, timeout: 60_000 })
  return status !== 0 && `npm has no ${name} here`
}

t.test('the archive', { skip: whyNot() }, async t => {
  const kernels = path.join(root, 'build/cmake')
  const fatbins = existsSync(kernels) ? readdirSync(kernels).filter(name => name.endsWith('.fatbin')) : []
  const data = path.join(work, 'golden')
  mkdirSync(data)
  writeFileSync(path.join(data, 'numbers.txt'), '1 2 3\n')
  const archive = path.join(work, 'suite.tar.xz')
  const options = ['--addon', addon, '--out', archive, '--arch', process.arch, '--with', data]
  const env = {
    XZ_OPT: '-T0 --lzma2=preset=3,dict=32MiB',
    ...(fatbins.length > 0 && { DGX_SPARK_FATBINS: kernels }),
  }
  const printed = run(root, 'node', ['test/fixtures/gpu-suite/pack.js', ...options], env)
  t.match(printed, /suite\.tar\.xz: [\d.]+ MB/)
  t.ok(statSync(archive).size <= 45e6, `${statSync(archive).size} bytes`)
  run(work, 'tar', ['xf', archive])
  const suite = path.join(work, 'dgx-spark-gpu')

  for (const file of [
    'run.sh',
    'bin/node',
    'build/Release/dgx_spark.node',
    'dist/index.js',
    'native/exports.map',
  ]) {
    t.ok(existsSync(path.join(suite, file)), file)
  }
  for (const folder of ['test/gpu', 'bench/rows', 'bench/peers', 'native/kernels']) {
    t.ok(readdirSync(path.join(suite, folder)).length > 0, folder)
  }
  t.equal(readFileSync(path.join(suite, 'data/golden/numbers.txt'), 'utf8'), '1 2 3\n')
  for (const name of fatbins) t.ok(existsSync(path.join(suite, 'kernels', name)), name)
  t.notOk(existsSync(path.join(suite, 'node_modules/tap')), 'nothing of tap travels')
  t.type(JSON.parse(readFileSync(path.join(suite, 'package.json'), 'utf8')).gitHead, 'string')

  await t.test('runs with no other Node.js on the path', { skip: noCudaCalls }, async t => {
    const fakeDriver = new FakeDriver()
    t.teardown(() => fakeDriver.dispose())
    const out = path.join(work, 'out')
    const outside = {
      ...machine(fakeDriver, discrete).env,
      PATH: '/usr/bin:/bin',
      OUT: out,
      DGX_SPARK_GPU_SIZES: 'small',
    }
    const { status, stdout } = spawnSync(path.join(suite, 'run.sh'), ['environment', 'tests'], {
      encoding: 'utf8',
      env: outside,
      timeout: 240_000,
    })
    t.equal(status, 1, 'kernels that do nothing are found out')
    t.match(stdout, /native addon.*dgx-spark-gpu\/build\/Release\/dgx_spark\.node/s)
    t.match(stdout, /not ok \d+ - T5 33x48 r3: linear f32/)
    t.match(stdout, /\d+ passed, \d+ failed, \d+ skipped\n== FAILED after [\d.]+ s/)
    t.match(readFileSync(path.join(out, 'tests.tap'), 'utf8'), /^1\.\.\d+$/m)
  })

  await t.test('says when the addon does not load', async t => {
    writeFileSync(path.join(suite, 'build/Release/dgx_spark.node'), 'of another machine')
    const outside = { PATH: path.join(work, 'empty'), OUT: path.join(work, 'out') }
    const { status, stdout } = spawnSync(
      path.join(suite, 'bin/node'),
      [path.join(suite, 'test/fixtures/gpu-suite/run.js'), 'environment'],
      { encoding: 'utf8', env: outside },
    )
    t.equal(status, 1)
    t.match(stdout, /The addon does not load: .*\nIt is not built here: not installed: cmake, c\+\+\n/)
  })
})

t.test('options that do not fit are refused', t => {
  const refused = (args: string[]) =>
    spawnSync('node', ['test/fixtures/gpu-suite/pack.js', ...args], { encoding: 'utf8' })
  t.match(refused(['--arch', 'mips']), { status: 1, stderr: /--arch is mips; it must be x64 or arm64/ })
  t.match(refused(['--with', '/nowhere/at/all']), { status: 1, stderr: /--with names \/nowhere\/at\/all/ })
  t.end()
})
