"""Render aerial scenes with exact boxes: a seed, a size and a `SceneConfig` in, pixels, boxes and labels out."""

from vgtok.data.synthetic.objects import NAMES
from vgtok.data.synthetic.scene import LAYOUTS, Scene, SceneConfig, Setting, render_scene

__all__ = ["LAYOUTS", "NAMES", "Scene", "SceneConfig", "Setting", "render_scene"]
