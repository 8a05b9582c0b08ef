// inspect --html: the layout, the names of files in it, and the page as a browser shows it.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { type Diagram, diagramOf } from '#lib/cli/graph-page/diagram.js'
import { shortened } from '#lib/cli/graph-page/labels.js'
import { layOut } from '#lib/cli/graph-page/layout.js'
import { graphPage } from '#lib/cli/graph-page/page.js'
import { graph as graphAttribute, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { inferFacts } from '#lib/graph/shape-inference.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { Browser, noBrowser } from '../fixtures/browser.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const folder = mkdtempSync(path.join(tmpdir(), 'graph-page-'))
t.teardown(() => rmSync(folder, { recursive: true, force: true }))

const hostile = '</script><img src=x onerror="document.title=1">\u202e&'
const windows = { strides: ints([2, 2]), pads: ints([1, 1, 1, 1]), kernel_shape: ints([3, 3]) }

/** A convolution, a branch, and names that want to be more than text. */
const small = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', [1, 2, 8, 8]) }],
  outputs: [{ name: hostile }, { name: 'branched' }],
  nodes: [
    makeNode('Conv', ['x', 'w'], ['c'], { name: 'first', attributes: windows }),
    makeNode('Relu', ['c'], ['r'], { name: hostile }),
    makeNode('Mul', ['r', 'half'], [hostile]),
    makeNode('If', ['condition'], ['branched'], {
      attributes: {
        then_branch: graphAttribute(
          makeGraph({ name: 'then', outputs: [{ name: 't' }], nodes: [makeNode('Neg', ['r'], ['t'])] }),
        ),
        else_branch: graphAttribute(
          makeGraph({ name: 'else', outputs: [{ name: 'e' }], nodes: [makeNode('Abs', ['r'], ['e'])] }),
        ),
      },
    }),
  ],
  initializers: new Map([
    ['w', Constant.f32(new Array(36).fill(0.1), [2, 2, 3, 3])],
    ['half', Constant.f32(0.5)],
    ['condition', Constant.from('bool', [], Uint8Array.of(1))],
  ]),
})

const chain = (count: number, node: (i: number) => Node): Graph =>
  makeGraph({
    inputs: [{ name: 'v0', type: tensorType('f32', [4]) }],
    outputs: [{ name: `v${count}` }],
    nodes: Array.from({ length: count }, (_, i) => node(i + 1)),
  })

const drawn = (graph: Graph): Diagram => diagramOf({ title: '', graph, facts: inferFacts(graph) })

t.test('boxes say what a node does', t => {
  const { boxes, edges } = diagramOf({
    title: '',
    graph: small,
    facts: inferFacts(small),
    times: new Map([['first', 2]]),
  })
  t.same(
    boxes.map(({ title }) => title),
    ['input', 'Conv', 'Relu', 'Mul', 'If', 'output', 'output'],
  )
  t.match(boxes[1], { kind: { name: 'convolution' }, name: 'first', ms: 2, flops: 2 * 18 * 32 })
  t.same(boxes[1]!.attributes, ['kernel 3×3', 'stride 2', 'pad 1'])
  t.match(boxes[1]!.reads[1], { name: 'w', constant: 'f32 [2, 2, 3, 3]' })
  t.equal(boxes[1]!.makes[0]!.type, 'f32 [1, 2, 4, 4]')
  t.equal(boxes[3]!.reads[1]!.constant, '0.5')
  t.equal(boxes[4]!.bodies.length, 2)
  t.same(edges.map(({ from, to }) => `${from}-${to}`).sort(), ['0-1', '1-2', '2-3', '2-4', '3-5', '4-6'])
  t.equal(shortened('a/long/name/of/a/layer', 10, 'end'), '…f/a/layer')
  t.end()
})

t.test('no box covers another, edges lead down, and long graphs fill the page', t => {
  const residual = chain(400, i =>
    i % 5 === 0
      ? makeNode('Add', [`v${i - 1}`, `v${i - 4}`], [`v${i}`])
      : makeNode('Relu', [`v${i - 1}`], [`v${i}`]),
  )
  const mask = chain(300, i =>
    i % 10 === 0
      ? makeNode('Mul', [`v${i - 1}`, 'v1'], [`v${i}`])
      : makeNode('Relu', [`v${i - 1}`], [`v${i}`]),
  )
  for (const graph of [small, residual, mask]) {
    const diagram = drawn(graph)
    const { boxes, edges, width, height } = layOut(diagram)
    const sorted = [...boxes].sort((a, b) => a.x - b.x)
    for (const [i, a] of sorted.entries()) {
      for (const b of sorted.slice(i + 1)) {
        if (b.x >= a.x + a.width) break
        if (a.y < b.y + b.height && b.y < a.y + a.height) t.fail(`${a.x} ${a.y} covers ${b.x} ${b.y}`)
      }
    }
    for (const { from, to, turn } of edges)
      if (turn.length === 0 && boxes[from]!.y + boxes[from]!.height > boxes[to]!.y)
        t.fail(`${from} is not above ${to}`)
    const references = boxes.flatMap(({ lines }) => lines.filter(({ style }) => style === 'reference'))
    t.equal(edges.length + references.length, diagram.edges.length, 'every edge is drawn or named')
    if (graph !== small) t.ok(height < 2 * width, `${width} x ${height}`)
  }
  t.end()
})

t.test('names from files are text', t => {
  const facts = inferFacts(small)
  const page = graphPage({ title: hostile, facts: [['output', hostile]] }, [
    { title: 'all', graph: small, facts },
  ])
  t.notMatch(page, '<img')
  t.notMatch(page, '\u202e')
  t.equal(page.match(/<\/script>/g)?.length, 1)
  t.notMatch(page, /(src|href)="?(https?:)?\/\//)
  t.end()
})

t.test('in a browser', { skip: noBrowser }, async t => {
  const [model, page] = ['small.onnx', 'small.html'].map(name => path.join(folder, name)) as [string, string]
  writeFileSync(model, serializeOnnx(small))
  const { status, stderr } = spawnSync(
    process.execPath,
    ['--no-warnings', main, 'inspect', model, '--html', page, '--profile', '--backend', 'js'],
    { encoding: 'utf8' },
  )
  t.equal(status, 0, stderr)
  t.match(readFileSync(page, 'utf8'), 'class="time"')
  const browser = new Browser()
  t.teardown(() => browser.close())
  await browser.prefer('light')
  await browser.open(page)
  const selected = (): Promise<string> =>
    browser.evaluate("document.querySelector('.view:not([hidden]) .box.current .title')?.textContent ?? ''")
  const look = 'getComputedStyle(document.body).backgroundColor'
  const light = await browser.screenshot()
  t.ok(light.length > 20_000, `${light.length} bytes`)

  await t.test('finds nodes', async t => {
    await browser.press('/')
    await browser.type('conv 4, 4')
    t.equal(await browser.evaluate("document.getElementById('found').value"), '1 found')
    await browser.press('Enter')
    t.match(await selected(), 'Conv')
    const panel = await browser.evaluate<string>("document.getElementById('selected').textContent")
    t.match(panel, /first.*stride 2.*f32 \[2, 2, 3, 3\]/s)
    t.equal(await browser.evaluate("document.querySelectorAll('.view:not([hidden]) tr.match').length"), 1)
  })

  await t.test('is used by keys', async t => {
    await browser.press('Escape')
    await browser.evaluate("document.querySelector('.view:not([hidden]) .box.current').focus()")
    await browser.press('ArrowDown')
    t.match(await selected(), 'Relu')
    await browser.press('ArrowUp')
    t.match(await selected(), 'Conv')
    const transform = "document.querySelector('.view:not([hidden]) .canvas').getAttribute('transform')"
    const before = await browser.evaluate(transform)
    await browser.press('+')
    t.not(await browser.evaluate(transform), before)
    await browser.press('t')
    t.ok(await browser.evaluate("document.querySelector('.view:not([hidden]) tr.current').checkVisibility()"))
    await browser.press('t')
  })

  await t.test('shows other graphs', async t => {
    const view = "document.querySelector('.view:not([hidden])').id"
    await browser.evaluate("location.hash = '#g1'")
    await t.resolveMatch(browser.evaluate(view), 'g1')
    await browser.evaluate("document.querySelector('#g0 td a[href*=b]').click()")
    await t.resolveMatch(browser.evaluate(view), /^g0b\d+g0$/)
    t.match(await browser.evaluate("document.querySelector('.view:not([hidden]) .path').textContent"), 'If')
  })

  await t.test('is light or dark', async t => {
    const white = await browser.evaluate(look)
    await browser.prefer('dark')
    const dark = await browser.evaluate(look)
    t.not(dark, white)
    await browser.evaluate("document.getElementById('theme').click()")
    t.equal(await browser.evaluate(look), white)
  })
  t.same(browser.complaints, [])
  t.equal(await browser.evaluate('document.title'), 'small.onnx')
})
