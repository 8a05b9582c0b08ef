// The package as a stranger meets it: prebuilds, npm pack, npm install without scripts, the two-line import.
import { execFileSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'

const root = path.resolve(import.meta.dirname, '../..')
const work = mkdtempSync(path.join(tmpdir(), 'dgx-spark-pack-'))
t.teardown(() => rmSync(work, { recursive: true, force: true }))

const prebuild = path.join('prebuilds', `linux-${process.arch}`, 'dgx-spark.glibc.node')

function run(cwd: string, command: string, args: string[], env: Record<string, string> = {}): string {
  return execFileSync(command, args, {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
  })
}

/** A copy of the checkout: prebuildify moves files of build/, which other tests are using. */
function copyCheckout(): string {
  const copy = path.join(work, 'checkout')
  for (const file of run(root, 'git', ['ls-files', '-co', '--exclude-standard']).trim().split('\n')) {
    if (!existsSync(path.join(root, file))) continue
    mkdirSync(path.dirname(path.join(copy, file)), { recursive: true })
    cpSync(path.join(root, file), path.join(copy, file))
  }
  cpSync(path.join(root, 'dist'), path.join(copy, 'dist'), { recursive: true })
  symlinkSync(path.join(root, 'node_modules'), path.join(copy, 'node_modules'))
  return copy
}

/** The fatbins of the build under test, so that the prebuild does not run nvcc again. */
function fatbins(): Record<string, string> {
  const folder = path.join(root, 'build', 'cmake')
  const built = existsSync(folder) && readdirSync(folder).some(name => name.endsWith('.fatbin'))
  return built ? { DGX_SPARK_FATBINS: folder } : {}
}

const supported = process.platform === 'linux' && ['x64', 'arm64'].includes(process.arch)

t.test('the tarball', { skip: !supported && 'prebuilds exist for linux x64 and arm64' }, async t => {
  const checkout = copyCheckout()
  run(checkout, 'npm', ['run', `prebuilds:${process.arch}`], fatbins())
  const packed = JSON.parse(
    run(checkout, 'npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', work]),
  )
  const [tarball] = Array.isArray(packed) ? packed : Object.values<{ filename: string }>(packed)
  const files: string[] = tarball.files.map((file: { path: string }) => file.path)

  await t.test('holds what it should and nothing that runs at install', async t => {
    for (const file of [
      'dist/index.js',
      'dist/index.d.ts',
      'dist/cli/main.js',
      'native/build.cjs',
      prebuild,
    ]) {
      t.ok(files.includes(file), `${file} is in the tarball`)
    }
    t.notOk(files.includes('binding.gyp'), 'npm would run node-gyp for it')
    t.notOk(files.some(file => /^(test|build|node_modules|docs)\//.test(file)))
    const manifest = JSON.parse(run(checkout, 'node', ['-p', 'JSON.stringify(require("./package.json"))']))
    t.equal(manifest.gypfile, false)
    for (const hook of ['preinstall', 'install', 'postinstall']) t.notOk(manifest.scripts[hook], `no ${hook}`)
  })

  await t.test('the prebuild runs on Debian 12, Ubuntu 22.04 and newer', async t => {
    const symbols = run(checkout, 'objdump', ['-T', prebuild])
    const newest = (name: string): number[] =>
      [...symbols.matchAll(new RegExp(`\\b${name}_([0-9.]+)`, 'g'))]
        .map(match => match[1]!.split('.').map(Number))
        .reduce((a, b) => ((a[0]! - b[0]! || a[1]! - b[1]! || (a[2] ?? 0) - (b[2] ?? 0)) >= 0 ? a : b))
    t.ok(newest('GLIBC')[1]! <= 34, `needs GLIBC_${newest('GLIBC').join('.')}, at most 2.34`)
    t.ok((newest('GLIBCXX')[2] ?? 0) <= 29, `needs GLIBCXX_${newest('GLIBCXX').join('.')}, at most 3.4.29`)
    const exported = symbols.split('\n').filter(line => / g\s+D[FO] (?!\*UND\*)/.test(line))
    const names = exported.map(line => line.trim().split(/\s+/).at(-1)).sort()
    t.same(names, ['napi_register_module_v1', 'node_api_module_get_api_version_v1'])
  })

  await t.test('publint finds nothing', async t => {
    t.match(run(checkout, 'npx', ['publint', '--strict', path.join(work, tarball.filename)]), /All good/)
  })

  await t.test('installs without scripts and loads the native addon', async t => {
    const project = path.join(work, 'project')
    mkdirSync(project)
    writeFileSync(path.join(project, 'package.json'), '{ "type": "module", "private": true }\n')
    run(project, 'npm', [
      'install',
      '--ignore-scripts',
      '--prefer-offline',
      '--no-audit',
      '--no-fund',
      path.join(work, tarball.filename),
    ])
    writeFileSync(
      path.join(project, 'index.js'),
      `import { HardwareInfo, DoRALinear } from 'dgx-spark'
       const { backend } = await HardwareInfo.detect()
       using_native(backend, DoRALinear)
       function using_native(backend) {
         const loaded = process.report.getReport().sharedObjects.filter(file => file.includes('dgx-spark'))
         console.log(JSON.stringify({ backend: backend.name, loaded }))
       }`,
    )
    const report = JSON.parse(run(project, 'node', ['index.js']))
    t.not(report.backend, 'js')
    t.equal(report.loaded.length, 1)
    t.ok(report.loaded[0].endsWith(path.join('node_modules', 'dgx-spark', prebuild)), report.loaded[0])
    const required = run(project, 'node', ['-e', 'console.log(typeof require("dgx-spark").HardwareInfo)'])
    t.equal(required.trim(), 'function')
    const info = JSON.parse(run(project, 'npx', ['--no', 'dgx-spark', 'info', '--json']))
    t.type(info.version, 'string')
  })
})
