// What an import of the library and the command line tool load before a call needs more. Dynamic imports are not followed.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'

const dist = path.resolve(import.meta.dirname, '../../dist')

/** Modules of ours, relative to dist, that loading one loads, and the packages of others. */
function loadedBy(entry: string): { own: string[]; packages: string[] } {
  const own = new Set([path.join(dist, entry)])
  const packages = new Set<string>()
  for (const file of own) {
    const text = readFileSync(file, 'utf8')
    for (const [, name = ''] of text.matchAll(
      /^(?:import|export)\s(?:[^'"]*?\sfrom\s)?['"]([^'"]+)['"]/gms,
    )) {
      if (name.startsWith('.')) own.add(path.resolve(path.dirname(file), name))
      else if (!name.startsWith('node:')) packages.add(name)
    }
  }
  return { own: [...own].map(file => path.relative(dist, file)), packages: [...packages] }
}

t.test('the library', async t => {
  const { own, packages } = loadedBy('index.js')
  t.strictSame(packages, [], 'no package of others')
  t.ok(own.includes('model/graph-builder.js'), 'what is synchronous is there')
  const lazy = [
    /^(plan|cluster|cli)\//,
    /^kernels\/js\/(?!elements)/,
    /^pipeline\.js/,
    /^io\/onnx\/(?!save\.js)/,
    /^graph\/(gradients|rewrites\/fuse)\//,
    /^training\/(run|step|evaluator|passes)\.js/,
    /^model\/(open-engine|graph-runner|host\/index|model-file|onnx-runtime)\.js/,
    /^kernels\/(cpu|cuda)\.js/,
    /^dora\/model\/(new-adapter|merge|peft-folder|import-adapter)\.js/,
    /^hardware\/(machine|nvidia|other-gpus)\.js/,
    /^openpilot\/architectures\/(?!build\.js)/,
    /^simulation\/(simulation|batch|step-graph|model-graph|scenarios|comparison)\.js/,
    /^text\/(?!text-(tokenizer|model|session)|chat-template|sampl|stop-detector|generation\/(generation|text-request))/,
  ]
  for (const pattern of lazy)
    t.strictSame(
      own.filter(file => pattern.test(file)),
      [],
      `nothing like ${pattern}`,
    )
  t.ok(own.length <= 262, `${own.length} modules`)
})

t.test('the cluster', async t => {
  const { own, packages } = loadedBy('cluster/index.js')
  const { peerDependencies } = JSON.parse(readFileSync(path.join(dist, '../package.json'), 'utf8'))
  t.strictSame(
    packages.filter(name => Object.keys(peerDependencies).some(peer => name.startsWith(peer))),
    [],
    'no optional package',
  )
  t.ok(own.includes('cluster/node/cluster-node.js'))
  for (const pattern of [
    /^(plan|cli|simulation)\//,
    /^kernels\/(cpu|cuda|js\/(?!elements))/,
    /^pipeline\.js/,
  ])
    t.strictSame(
      own.filter(file => pattern.test(file)),
      [],
      `nothing like ${pattern}`,
    )
})

t.test('dgx-spark --help', async t => {
  const { own, packages } = loadedBy('cli/main.js')
  t.strictSame(packages, ['commander'])
  t.ok(own.length <= 12, own.join(' '))
})
