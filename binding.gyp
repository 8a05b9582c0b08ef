# A thin wrapper: CMakeLists.txt builds everything. node-gyp and prebuildify only need a file in build/Release.
{
  'targets': [{
    'target_name': 'dgx_spark',
    'type': 'none',
    'actions': [{
      'action_name': 'cmake',
      'message': 'Building with CMake',
      'inputs': ['CMakeLists.txt'],
      'outputs': ['<(PRODUCT_DIR)/dgx_spark.node'],
      'action': ['node', 'native/build.cjs', '--config=<(CONFIGURATION_NAME)', '--arch=<(target_arch)'],
    }],
  }],
}
