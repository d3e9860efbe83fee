from setuptools import find_packages, setup

setup(name="sample-upstream", version="1.0", packages=find_packages())
