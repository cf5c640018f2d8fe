"""A detector as one ONNX file, and the runtime that reads it with numpy, OpenCV and onnxruntime alone."""
