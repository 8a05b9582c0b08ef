// The package as a stranger meets it: prebuilds, npm pack, npm install, the two-line import.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { Checkout, run } from '../fixtures/checkout.js'
import { links, pages } from '../fixtures/docs/pages.js'

const prebuild = path.join('prebuilds', `linux-${process.arch}`, 'dgx-spark.glibc.node')
const supported = process.platform === 'linux' && ['x64', 'arm64'].includes(process.arch)

t.test('the tarball', { skip: !supported && 'prebuilds exist for linux x64 and arm64' }, async t => {
  const copy = new Checkout()
  t.teardown(() => copy.dispose())
  const { folder: checkout } = copy
  copy.prebuild(process.arch)
  const { tarball, files } = copy.pack()

  await t.test('holds what it should and nothing that runs at install', async t => {
    for (const file of [
      'dist/index.js',
      'dist/kernels/index.js',
      'dist/cluster/index.cjs',
      'dist/cluster/index.js',
      'dist/index.d.ts',
      'dist/cli/main.js',
      'native/build.cjs',
      prebuild,
    ]) {
      t.ok(files.includes(file), `${file} is in the tarball`)
    }
    t.notOk(files.includes('binding.gyp'), 'npm would run node-gyp for it')
    t.notOk(files.some(file => /^(test|build|node_modules|lib|docs\/api)\//.test(file)))
    t.notOk(files.some(file => /^dist\/.*\.map$/.test(file)))
    t.notMatch(readFileSync(path.join(checkout, 'dist/index.js'), 'utf8'), 'sourceMappingURL')
    const manifest = JSON.parse(run(checkout, 'node', ['-p', 'JSON.stringify(require("./package.json"))']))
    t.equal(manifest.gypfile, false)
    for (const hook of ['preinstall', 'install', 'postinstall', 'prepare'])
      t.notOk(manifest.scripts[hook], `no ${hook}`)
    const { repository, homepage, bugs } = manifest
    const site = repository.url.replace(/^git\+|\.git$/g, '')
    t.match({ homepage, bugs }, { homepage: `${site}#readme`, bugs: `${site}/issues` })
  })

  await t.test('the links of its pages lead to what it holds', async t => {
    for (const page of pages) {
      if (!files.includes(page.name)) continue
      for (const link of links(page).filter(link => !link.startsWith('#'))) {
        const target = path.join(path.dirname(page.name), link.replace(/#.*$/, ''))
        const there = files.some(file => file === target || file.startsWith(`${target}/`))
        t.ok(there, `${page.name}: ${link}`)
      }
    }
    t.ok(files.includes('README.md') && files.includes('docs/models.md'))
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
    t.match(run(checkout, 'npx', ['publint', '--strict', tarball]), /All good/)
  })

  await t.test('installs without a warning and loads the native addon', async t => {
    const { project, warnings } = copy.install([tarball])
    t.notMatch(warnings, 'dgx-spark')
    writeFileSync(
      path.join(project, 'index.js'),
      `import { HardwareInfo, DoRALinear } from 'dgx-spark'
       const { backend } = await HardwareInfo.detect()
       const loaded = process.report.getReport().sharedObjects.filter(file => file.includes('dgx-spark'))
       console.log(JSON.stringify({ backend: backend.name, loaded, layer: typeof DoRALinear.fromLinear }))`,
    )
    const report = JSON.parse(run(project, 'node', ['index.js']))
    t.not(report.backend, 'js')
    t.equal(report.layer, 'function')
    t.equal(report.loaded.length, 1)
    t.ok(report.loaded[0].endsWith(path.join('node_modules', 'dgx-spark', prebuild)), report.loaded[0])
    const required = run(project, 'node', ['-e', 'console.log(typeof require("dgx-spark").HardwareInfo)'])
    t.equal(required.trim(), 'function')
    const info = JSON.parse(run(project, 'npx', ['--no', 'dgx-spark', 'info', '--json']))
    t.type(info.version, 'string')
  })
})
