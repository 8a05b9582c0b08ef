// The shared ONNX cases on the GPU (DGX_SPARK_TEST_DATA): all that pass on the CPU pass there.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { readCases } from '../fixtures/conformance/cases.js'
import { failureOf, openRunner } from '../fixtures/conformance/runners.js'
import { gpuTests } from '../fixtures/gpu-suite/gpu.js'

/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */

const archive = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', 'onnx-node.tar.gz')

/** @param {Claims} t */
async function cases(t) {
  if (!existsSync(archive)) return t.skip('cases', 'DGX_SPARK_TEST_DATA has no onnx-node.tar.gz')
  const [gpu, cpu] = [await openRunner('cuda'), await openRunner('cpu')]
  for (const tested of readCases(archive)) {
    const failure = await failureOf(tested, gpu)
    if (failure && (await failureOf(tested, cpu))) t.skip(tested.name, 'fails on the CPU, too')
    else t.ok(!failure, tested.name, failure)
  }
}

await gpuTests({ cases })
