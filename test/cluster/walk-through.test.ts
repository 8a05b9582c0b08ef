// The walk-through of docs/cluster.md, as somebody types it: two machines in network namespaces, and a fleet that is described.
import { spawnSync } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { writeRandomLlama } from '../../bench/random-llama.js'
import { canMakeNetworks, TestNetwork } from '../fixtures/cluster/namespaces.js'
import { up } from '../fixtures/cluster/up.js'
import { blocks, pages } from '../fixtures/docs/pages.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const page = pages.find(({ name }) => name === 'docs/cluster.md')!
const [, sparks = '', fleet = ''] = page.text.split(
  /^## A walk-through[\s\S]*?^### Two Sparks|^### A mixed fleet/m,
)

/** Words of the commands of a part, and the machine that each is typed on. */
const typed = (text: string): { words: string[]; on: string }[] =>
  blocks({ name: '', text }, 'sh').flatMap(block =>
    block
      .trim()
      .split('\n')
      .map(line => {
        const [command = '', on = ''] = line.split(' # ')
        return { words: command.replace('npx dgx-spark ', '').split(' '), on }
      }),
  )

const folder = t.testdir({})

const sizes = { hidden: 256, inner: 512, layers: 4, heads: 4, kvHeads: 2, headSize: 64, vocabulary: 500 }

t.test('two Sparks on a cable', { skip: canMakeNetworks() }, async t => {
  const g = new GraphBuilder()
  let h = g.input('x', 'f32', [2, 64])
  for (let i = 0; i < 6; i++) {
    const w = g.initializer(`w${i}`, Tensor.random([64, 64], { seed: i, distribution: 'normal' }))
    h = g.add('Tanh', [g.add('MatMul', [h, w])])
  }
  g.output(h, 'y')
  using model = await Model.fromGraph(g.build(), { backend: 'cpu' })
  const file = path.join(folder, 'model.onnx')
  await model.save(file)
  const text = path.join(folder, 'text.gguf')
  await writeRandomLlama(text, 'Q4_0', sizes)

  const network = new TestNetwork('wlk')
  t.teardown(() => network.close())
  const hosts = new Map(['spark-1', 'spark-2'].map(name => [name, network.host(name)]))
  network.cable(hosts.get('spark-1')!, '10.10.0.1/24', hosts.get('spark-2')!, '10.10.0.2/24')
  const inside = (on: string) => [
    ...network.inside(hosts.get(on)!, []),
    ...['env', `DGX_SPARK_CLUSTER_HOME=${path.join(folder, on)}`, 'DGX_SPARK_BACKEND=cpu'],
  ]
  const said: readonly (readonly [string, RegExp])[] = [
    ['links', /spark-2/],
    ['place', /spark-[12]/],
    ['generate', /spark-1\+spark-2: embedding, layers 0-3, head, sums over stream/],
    ['--strategy tensor', /spark-1\+spark-2: nodes 0 to \d+, sums over stream/],
    ['run', /spark-[12]: /],
    ['show', /token|load|compute|transfer|free|refusal|allocate/],
    ['verify', /nothing was changed/],
  ]
  const given = new Map([
    ['<model.onnx>', file],
    ['<model.gguf>', text],
  ])
  const used = new Set<string>()
  for (const { words, on } of typed(sparks)) {
    const args = words.map(word => given.get(word) ?? word)
    if (args[0] === 'up') {
      const node = await up(t, args.slice(1), inside(on))
      if (on === 'spark-2') await node.until(/"link"/)
      continue
    }
    const [command, ...rest] = [...inside(on), process.execPath, '--no-warnings', main, ...args]
    const { status, stdout, stderr } = spawnSync(command!, rest, { encoding: 'utf8', timeout: 60_000 })
    // A machine that is busy measures a cable as slower than layers can be shared over.
    const isSlow = /tensor parallelism needs 1 ms or less/.test(stderr)
    if (isSlow) continue
    t.equal(status, 0, `${args.join(' ')}: ${stdout}${stderr}`)
    if (args[0] === 'invite') given.set('<code>', /(?:\w{4}-){12}\w{4}/.exec(stdout)?.[0] ?? '')
    else if (args[1] === 'show' && !used.has(on))
      t.match(stdout, /no such record/, 'a node that had no stage')
    else t.match(stdout + stderr, said.find(([word]) => words.join(' ').includes(word))![1], args.join(' '))
    for (const [, names] of (stdout + stderr).matchAll(/^(?:dgx-spark: )?([\w+-]+): (?:nodes|embedding)/gm))
      for (const name of names!.split('+')) used.add(name)
  }
})

t.test('a mixed fleet at home', async t => {
  const [description = ''] = blocks({ name: '', text: fleet }, 'json')
  writeFileSync(path.join(folder, 'fleet.json'), description)
  await writeRandomLlama(path.join(folder, 'model.gguf'), 'Q4_0', sizes)
  const commands = typed(fleet)
  t.equal(commands.length, 3)
  for (const { words } of commands) {
    const args = words.map(word => (word === '<model.gguf>' ? 'model.gguf' : word))
    const options = { cwd: folder, encoding: 'utf8' } as const
    const { status, stdout, stderr } = spawnSync(process.execPath, ['--no-warnings', main, ...args], options)
    t.equal(status, 0, `${args.join(' ')}: ${stderr}`)
    t.match(stdout, /\b(spark|pc|laptop)\b/)
  }
  t.ok(existsSync(path.join(folder, 'placement.html')))
})
