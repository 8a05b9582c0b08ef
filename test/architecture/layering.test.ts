// Layering: a file imports only from its own layer or below (CONTRIBUTING.md); and other rules on the source text.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'

const root = path.resolve(import.meta.dirname, '../..')
/** Folders of lib, lowest first. */
const layers = [
  'core',
  'native.ts',
  'hardware',
  'precision',
  'memory',
  'weights',
  'graph',
  'io',
  'hub',
  'kernels',
  'plan',
  'pipeline.ts',
  'model',
  'diagnostics',
  'benchmark',
  'dora/peft',
  'dora/layer',
  'dora/model',
  'training',
  'data',
  'openpilot',
  'text',
  'simulation',
  'bench',
  'cluster',
  'cli',
]

function files(folder: string, extensions: RegExp): { name: string; text: string }[] {
  return readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter(name => extensions.test(name))
    .map(name => ({
      name: path.join(folder, name),
      text: readFileSync(path.join(root, folder, name), 'utf8'),
    }))
}

const lib = files('lib', /\.ts$/)
const native = files('native', /\.(cc|h|cu|cuh|in)$/)

/** Paths, relative to lib, of the files that a TypeScript file imports, types included. */
const imports = ({ name, text }: { name: string; text: string }): string[] =>
  [...text.matchAll(/(?:from|import\()\s*'(\.[^']+)\.js'/g)].map(match =>
    path.relative('lib', path.join(path.dirname(name), `${match[1]}.ts`)),
  )

const layerOf = (file: string): number => {
  const [folder = '', subfolder] = file.split(path.sep)
  return layers.findIndex(name => name === folder || name === `${folder}/${subfolder}`)
}

t.test('every folder of lib has a layer', async t => {
  for (const { name } of lib) {
    const file = path.relative('lib', name)
    if (file !== 'index.ts') t.not(layerOf(file), -1, `${name} belongs to no layer`)
  }
})

t.test('no import of a higher layer', async t => {
  for (const source of lib) {
    const file = path.relative('lib', source.name)
    if (file === 'index.ts') continue
    for (const target of imports(source)) {
      t.notOk(target === 'index.ts', `${source.name} imports the public entry point`)
      t.ok(layerOf(target) <= layerOf(file), `${source.name} imports ${target}`)
    }
  }
})

t.test('no import cycles', async t => {
  const graph = new Map(lib.map(source => [path.relative('lib', source.name), imports(source)]))
  const done = new Set<string>()
  const visit = (file: string, trail: string[]): void => {
    if (trail.includes(file)) {
      t.fail(`cycle: ${[...trail, file].join(' > ')}`)
      return
    }
    if (done.has(file)) return
    for (const next of graph.get(file) ?? []) visit(next, [...trail, file])
    done.add(file)
  }
  for (const file of graph.keys()) visit(file, [])
  t.equal(done.size, graph.size)
})

t.test('a .node file is loaded in lib/native.ts only', async t => {
  for (const { name, text } of lib) {
    if (name !== path.join('lib', 'native.ts'))
      t.notMatch(text, /node-gyp-build|bindings\('|process\.dlopen/, name)
  }
})

t.test('native modules use only the APIs of their own layer', async t => {
  for (const { name, text } of native) {
    const folder = path.dirname(path.relative('native', name))
    if (folder !== 'napi' && name !== path.join('native', 'addon.cc'))
      t.notMatch(text, /<napi\.h>|node_api/, name)
    if (!/^(backend\/cuda|kernels|napi)\b/.test(folder)) {
      t.notMatch(text, /\bcu(Init|Mem|Launch|Device|Stream|Module)\w*\(|CUDA_ERROR/, name)
    }
    if (folder === 'core') t.notMatch(text, /#include "(?!core\/)/, name)
  }
})

t.test('text for a terminal goes through printable()', async t => {
  const writers = [
    'lib/cli/output.ts',
    'lib/cli/progress.ts',
    'lib/cli/table.ts',
    'lib/cli/text/chat-terminal.ts', // texts, piece by piece
    'lib/cli/text/chat.ts',
    'lib/cli/text/generate.ts',
    'lib/core/log.ts',
    'lib/kernels/fp4-child.ts', // to its parent process
  ].map(path.normalize)
  const writes = /std(out|err)\.write|emitWarning\(|^\s*console\./m
  for (const { name, text } of lib) if (!writers.includes(name)) t.notMatch(text, writes, name)
})

t.test('patterns of callers and files are matched in linear time', async t => {
  // RegExp backtracks: a pattern from a file could run for years. Literals are ours; lib/core/regex.ts matches the rest.
  for (const { name, text } of lib) t.notMatch(text, /\bRegExp\(|matchesGlob/, name)
})

t.test('no file is longer than 400 lines', async t => {
  const limit = 400
  const all = [...lib, ...native, ...files('test', /\.(ts|js|c)$/), ...files('bench', /\.js$/)]
  for (const { name, text } of all) t.ok(text.split('\n').length <= limit, `${name} is over ${limit} lines`)
})

t.test('no conflict markers of a merge', async t => {
  const pages = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md'].map(name => ({
    name,
    text: readFileSync(path.join(root, name), 'utf8'),
  }))
  const all = [...lib, ...native, ...files('docs', /^[^/]*\.md$/), ...pages]
  for (const { name, text } of all)
    t.notMatch(text, /^(<{7}|={7}|>{7})( |$)/m, `${name} has a conflict marker`)
})

t.test('scripts that are no tests lie in fixtures, for tap runs all others', async t => {
  for (const { name } of files('test', /\.[cm]?[jt]s$/)) {
    if (!name.startsWith(path.join('test', 'fixtures'))) t.match(name, /\.test\.(js|ts)$/, name)
  }
})
